// Requests to the server that sent this page. An error is thrown with the server's sentence.

import { current } from "./address.js";
import { language, t } from "./text.js";

const TOKEN = "regard-token";
const { view, params } = current();
if (params.token) { // `regard studio` puts it behind #, which no request contains
  sessionStorage.setItem(TOKEN, params.token);
  history.replaceState(null, "", `#/${view}`);
}
export const keepToken = token => sessionStorage.setItem(TOKEN, token);

async function send(method, path, body, signal) {
  const headers = { "Accept-Language": language() }, token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${String.fromCharCode(...new TextEncoder().encode(token))}`;
    // headers are bytes
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined
      : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(t("no_server"));
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(told.error || `${answer.status} ${answer.statusText}`), { status: answer.status, where: told.problems?.[0].where });
}
export const get = async (path, signal) => (await send("GET", path, undefined, signal)).json();
export const post = async (path, body, signal) => (await send("POST", path, body, signal)).json();
export const remove = async (path, signal) => (await send("DELETE", path, undefined, signal)).json();
export const runPath = (name, verb = "") => `/runs/${encodeURIComponent(name)}${verb && "/" + verb}`;

// Server-sent events of a POST: calls each(event, data) for every one.
export async function stream(path, body, each, signal) {
  const reader = (await send("POST", path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const kind = event.match(/^event: (.*)$/m), data = event.match(/^data: (.*)$/m);
      if (kind && data) each(kind[1], JSON.parse(data[1]));
    }
  }
}
