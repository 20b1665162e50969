// Requests to the server that the page came from, and what they cost.

// What went wrong, in words for people.
export class Refusal extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

let key = "";

// Send this bearer key from now on. It lives until the page is closed.
export function useKey(value) {
  key = value;
}

export const hasKey = () => key !== "";

// The address of a route; relative, so that a proxy may put the server under a path.
export const addressOf = (path) => new URL(path, document.baseURI).href;

// The answer to a request as {answer, times, truncated}; a body makes it a POST.
// Times are milliseconds; a part that the server did not report is null.
export async function ask(path, body = null, signal = undefined) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const options = { headers, signal, cache: "no-store" };
  if (body !== null) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  }
  const start = performance.now();
  let response;
  let answer;
  try {
    response = await fetch(addressOf(path), options);
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (!response) throw new Refusal("The server does not answer. Is it still running?");
    throw new Refusal(`The server gave status ${response.status} and no JSON.`, response.status);
  }
  if (!response.ok) throw refusalOf(response, answer);
  const header = (name) => {
    const value = response.headers.get(name);
    return value === null || Number.isNaN(Number(value)) ? null : Number(value);
  };
  const times = {
    roundTrip: performance.now() - start,
    total: header("x-total-time"),
    tokenization: header("x-tokenization-time"),
    queue: header("x-queue-time"),
    inference: header("x-inference-time"),
    tokens: header("x-compute-tokens"),
  };
  return { answer, times, truncated: response.headers.get("x-truncated") === "true" };
}

function refusalOf(response, answer) {
  const message = typeof answer?.error === "string" ? answer.error : "";
  const wait = response.headers.get("retry-after");
  if (response.status === 429) {
    return new Refusal(`The server is busy. Try again${wait ? ` in ${wait} s` : " soon"}.`, 429);
  }
  return new Refusal(message || `The server refused with status ${response.status}.`, response.status);
}
