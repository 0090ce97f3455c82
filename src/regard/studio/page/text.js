// Every text of the interface, in both languages. Views use only these keys; a test checks that none is missing.

export const TEXTS = {
  views: { en: "Views", ko: "화면" },
  view_runs: { en: "Runs", ko: "실행 목록" },
  view_try: { en: "Try", ko: "써 보기" },
  view_look: { en: "Look", ko: "어텐션 보기" },
  view_steps: { en: "Step by step", ko: "단계별 계산" },
  view_beam: { en: "Beam", ko: "빔 탐색" },
  view_errors: { en: "Errors", ko: "오류 분석" },
  view_compare: { en: "Compare", ko: "비교" },
  hint_try: { en: "Give the run an input, and see its answer as it is written.", ko: "입력을 주면 모델의 출력이 생성되는 과정을 볼 수 있습니다." },
  hint_look: { en: "Where the model looked: attention weights, layer by layer and head by head.", ko: "모델이 어디를 보았는지, 층과 헤드별 어텐션 가중치를 보여 줍니다." },
  hint_steps: { en: "One attention, computed with the run's own numbers.", ko: "어텐션 하나를 모델의 실제 값으로 단계별로 계산합니다." },
  hint_beam: { en: "The beam search as a tree, step by step.", ko: "빔 탐색 과정을 트리로, 단계별로 보여 줍니다." },
  hint_errors: { en: "What goes wrong, and why: the report of diagnose.", ko: "무엇이 왜 틀렸는지 diagnose 보고서로 보여 줍니다." },
  hint_compare: { en: "Several runs on one input, and the report of compare.", ko: "여러 모델을 한 입력에서 비교하고 compare 보고서를 보여 줍니다." },
  language: { en: "Language", ko: "언어" },
  theme: { en: "Colours", ko: "색" },
  theme_system: { en: "System", ko: "시스템" },
  theme_light: { en: "Light", ko: "밝게" },
  theme_dark: { en: "Dark", ko: "어둡게" },
  no_server: { en: "The server does not answer. Is 'regard studio' still running?", ko: "서버가 응답하지 않습니다. 'regard studio'가 실행 중인지 확인하십시오." },
  token: { en: "Token", ko: "토큰" },
  token_title: { en: "A token is needed", ko: "토큰이 필요합니다" },
  token_hint: { en: "It is the value of --token, or of REGARD_TOKEN, that the studio was started with.", ko: "스튜디오를 시작할 때 준 --token 또는 REGARD_TOKEN의 값입니다." },
  token_use: { en: "Use it", ko: "사용" },
  run: { en: "Run", ko: "실행" },
  no_runs: { en: "There is no trained run yet", ko: "학습된 실행이 아직 없습니다" },
  no_runs_hint: { en: "Train one in the view Runs, or with 'regard train RECIPE --out runs/NAME'.", ko: "'실행 목록' 화면에서, 또는 'regard train RECIPE --out runs/NAME' 명령으로 학습하십시오." },
};

const LANGUAGES = ["en", "ko"], KEPT = "regard-language";
export function language() {
  const wanted = localStorage.getItem(KEPT) || navigator.language.slice(0, 2);
  return LANGUAGES.includes(wanted) ? wanted : "en";
}
export const setLanguage = name => localStorage.setItem(KEPT, name);

// t(key, { count: 3 }) puts 3 where the text has {count}.
export function t(key, values = {}) {
  const text = TEXTS[key];
  if (!text) throw new Error(`no text ${key}`);
  return text[language()].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}
