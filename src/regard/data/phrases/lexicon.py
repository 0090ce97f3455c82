"""The words, as tables: who and what there is, and how it is (the kinds are explained in meaning.py)."""

from __future__ import annotations

# kind | English (plural where -s is wrong) | Korean, counter | French, gender
NOUNS = """
E grandmother | 할머니 분 | grand-mère f
E grandfather | 할아버지 분 | grand-père m
E mother | 어머니 분 | mère f
E father | 아버지 분 | père m
E teacher | 선생님 분 | professeur m
P doctor | 의사 명 | médecin m
P nurse | 간호사 명 | infirmière f
P farmer | 농부 명 | fermier m
P cook | 요리사 명 | cuisinier m
P singer | 가수 명 | chanteuse f
P painter | 화가 명 | peintre m
P writer | 작가 명 | écrivain m
P actor | 배우 명 | acteur m
P neighbor | 이웃 명 | voisin m
P soldier | 군인 명 | soldat m
P tourist | 관광객 명 | touriste m
P merchant | 상인 명 | marchand m
P lawyer | 변호사 명 | avocate f
P journalist | 기자 명 | journaliste f
P driver | 운전사 명 | chauffeur m
P woman/women | 여자 명 | femme f
P man/men | 남자 명 | homme m
P aunt | 이모 명 | tante f
P uncle | 삼촌 명 | oncle m
C boy | 소년 명 | garçon m
C girl | 소녀 명 | fille f
C child/children | 아이 명 | enfant m
C student | 학생 명 | étudiant m
C friend | 친구 명 | ami m
C cousin | 사촌 명 | cousine f
C baby/babies | 아기 명 | bébé m
N Minsu | 민수 명 | Minsu m
N Jiwon | 지원 명 | Jiwon f
N Sumin | 수민 명 | Sumin f
N Marie | 마리 명 | Marie f
N Paul | 폴 명 | Paul m
N Anna | 안나 명 | Anna f
N Junho | 준호 명 | Junho m
A dog | 개 마리 | chien m
A cat | 고양이 마리 | chat m
A bird | 새 마리 | oiseau m
A rabbit | 토끼 마리 | lapin m
A bear | 곰 마리 | ours m
A cow | 소 마리 | vache f
A pig | 돼지 마리 | cochon m
A duck | 오리 마리 | canard m
A tiger | 호랑이 마리 | tigre m
A monkey | 원숭이 마리 | singe m
A lion | 사자 마리 | lion m
A fox/foxes | 여우 마리 | renard m
A mouse/mice | 쥐 마리 | souris f
A elephant | 코끼리 마리 | éléphant m
A hamster | 햄스터 마리 | hamster m
A turtle | 거북이 마리 | tortue f
A frog | 개구리 마리 | grenouille f
F apple | 사과 개 | pomme f
F orange | 오렌지 개 | orange f
F banana | 바나나 개 | banane f
F peach/peaches | 복숭아 개 | pêche f
F egg | 달걀 개 | œuf m
F potato/potatoes | 감자 개 | pomme de terre f
F tomato/tomatoes | 토마토 개 | tomate f
F carrot | 당근 개 | carotte f
K cake | 케이크 개 | gâteau m
K sandwich/sandwiches | 샌드위치 개 | sandwich m
F mushroom | 버섯 개 | champignon m
K cookie | 쿠키 개 | biscuit m
F onion | 양파 개 | oignon m
Q bread | 빵 개 | pain m
M rice | 밥 그릇 | riz m
M meat | 고기 접시 | viande f
M soup | 국 그릇 | soupe f
Q cheese | 치즈 개 | fromage m
Q salad | 샐러드 접시 | salade f
D water | 물 잔 | eau f
D milk | 우유 잔 | lait m
D coffee | 커피 잔 | café m
D tea | 차 잔 | thé m
D juice | 주스 잔 | jus m
T book | 책 권 | livre m
T letter | 편지 통 | lettre f
T newspaper | 신문 부 | journal m
T poem | 시 편 | poème m
T novel | 소설 편 | roman m
T story/stories | 이야기 개 | histoire f
T report | 보고서 개 | rapport m
T article | 기사 개 | article m
T recipe | 요리법 개 | recette f
O box/boxes | 상자 개 | boîte f
O bag | 가방 개 | sac m
U clock | 시계 개 | horloge f
U cup | 컵 개 | tasse f
U knife/knives | 칼 자루 | couteau m
U pencil | 연필 자루 | crayon m
U table | 탁자 개 | table f
U chair | 의자 개 | chaise f
U lamp | 램프 개 | lampe f
U umbrella | 우산 개 | parapluie m
U key | 열쇠 개 | clé f
U phone | 전화기 대 | téléphone m
U radio | 라디오 대 | radio f
O toy | 장난감 개 | jouet m
O ball | 공 개 | balle f
O picture | 그림 점 | tableau m
O map | 지도 장 | carte f
O gift | 선물 개 | cadeau m
O ring | 반지 개 | bague f
O flower | 꽃 송이 | fleur f
U guitar | 기타 대 | guitare f
W coat | 외투 벌 | manteau m
W dress/dresses | 원피스 벌 | robe f
W shirt | 셔츠 벌 | chemise f
W skirt | 치마 벌 | jupe f
W sweater | 스웨터 벌 | pull m
B door | 문 개 | porte f
B window | 창문 개 | fenêtre f
B drawer | 서랍 개 | tiroir m
V car | 자동차 대 | voiture f
V bicycle | 자전거 대 | vélo m
V truck | 트럭 대 | camion m
V boat | 보트 척 | bateau m
H house | 집 채 | maison f
H tower | 탑 개 | tour f
H wall | 벽 개 | mur m
H hotel | 호텔 개 | hôtel m
Y street | 길 개 | rue f
Y bridge | 다리 개 | pont m
Y river | 강 개 | rivière f
Y field | 들판 개 | champ m
J music | 음악 개 | musique f
J history | 역사 개 | histoire f
J chemistry | 화학 개 | chimie f
J geography | 지리학 개 | géographie f
S song | 노래 곡 | chanson f
S melody/melodies | 멜로디 개 | mélodie f
"""

# kinds | English | Korean (irregular class) | French masculine, feminine | - before the noun, + after it
ADJECTIVES = """
P young | 젊다 | jeune jeune | -
PCE kind | 친절하다 | gentil gentille | -
PE famous | 유명하다 | célèbre célèbre | +
PCE happy | 행복하다 | heureux heureuse | +
PC sad | 슬프다 | triste triste | +
PCEA tired | 피곤하다 | fatigué fatiguée | +
PCA sick | 아프다 | malade malade | +
PCE busy | 바쁘다 | occupé occupée | +
PC brave | 용감하다 | courageux courageuse | +
PC diligent | 부지런하다 | travailleur travailleuse | +
PC clever | 똑똑하다 | intelligent intelligente | +
PCE polite | 예의 바르다 르 | poli polie | +
C shy | 수줍다 | timide timide | +
A hungry | 배고프다 | affamé affamée | +
A white | 하얗다 ㅎ | blanc blanche | +
A black | 까맣다 ㅎ | noir noire | +
AOUBVHF small | 작다 | petit petite | -
AOUBVH big | 크다 | grand grande | -
A cute | 귀엽다 ㅂ | mignon mignonne | +
A fierce | 사납다 ㅂ | féroce féroce | +
OUWVTB new | 새롭다 ㅂ | nouveau nouvelle | -
OUTVHWB old | 오래되다 | vieux vieille | -
OUWVB red | 빨갛다 ㅎ | rouge rouge | +
OUWVB blue | 파랗다 ㅎ | bleu bleue | +
OUWVB yellow | 노랗다 ㅎ | jaune jaune | +
OUWHY beautiful | 아름답다 ㅂ | beau belle | -
OUWVFK expensive | 비싸다 | cher chère | +
OU heavy | 무겁다 ㅂ | lourd lourde | +
OU light | 가볍다 ㅂ | léger légère | +
OUWV dirty | 더럽다 ㅂ | sale sale | +
OUWB clean | 깨끗하다 | propre propre | +
OUW pretty | 예쁘다 | joli jolie | -
FKMQ delicious | 맛있다 | délicieux délicieuse | +
FQD fresh | 신선하다 | frais fraîche | +
MD hot | 뜨겁다 ㅂ | chaud chaude | +
MD cold | 차갑다 ㅂ | froid froide | +
T long | 길다 | long longue | -
TS short | 짧다 | court courte | -
TJ interesting | 재미있다 | intéressant intéressante | +
TJ difficult | 어렵다 ㅂ | difficile difficile | +
TJ easy | 쉽다 ㅂ | facile facile | +
TS sad | 슬프다 | triste triste | +
S beautiful | 아름답다 ㅂ | beau belle | -
H high | 높다 | haut haute | -
HV strong | 튼튼하다 | solide solide | +
Y wide | 넓다 | large large | +
Y narrow | 좁다 | étroit étroite | +
Y dangerous | 위험하다 | dangereux dangereuse | +
"""
