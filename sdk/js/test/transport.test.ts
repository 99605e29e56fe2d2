// Retries, deadlines and errors, against servers that fail in every way.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError, ConnectionError, type Message, Postrider } from "postrider";

import { closedPort, type Reply, serve } from "./fixture.js";

const MESSAGE: Message = { to: { recipient: "u-1" }, content: { title: "x" } };
const ACCEPTED: Reply = { status: 202, body: '{"id":"msg_1","deliveries":[],"duplicate":false}' };

function problem(status: number, kind: string, headers: Record<string, string> = {}): Reply {
  const body = JSON.stringify({ type: `urn:postrider:problem:${kind}`, title: "T", status, detail: "d" });
  return { status, headers, body };
}

async function against(...answers: (Reply | undefined)[]): Promise<{ client: Postrider; calls: () => string[] }> {
  const server = await serve((_, number) => answers[Math.min(number, answers.length - 1)]);
  const client = new Postrider({ server: server.url, key: "k", timeoutMs: 300 });
  return { client, calls: () => server.received.map((call) => call.body.toString()) };
}

test("a message is sent again under the same key after every temporary failure", async () => {
  const failures = [undefined, problem(503, "store_unavailable"), problem(429, "too_many_calls", { "retry-after": "0" })];
  const { client, calls } = await against(...failures, ACCEPTED);
  assert.equal((await client.send(MESSAGE)).id, "msg_1");
  assert.equal(calls().length, 4);
  assert.equal(new Set(calls()).size, 1, "every call is the same, with its key");
});

test("Retry-After is obeyed", async () => {
  const { client } = await against(problem(429, "too_many_calls", { "retry-after": "1" }), ACCEPTED);
  const began = performance.now();
  await client.send(MESSAGE);
  assert.ok(performance.now() - began >= 1000);
});

test("a longer wait than allowed is left to the caller, who learns how long", async () => {
  const { client, calls } = await against(problem(429, "tenant_full", { "retry-after": "900" }));
  await assert.rejects(client.send(MESSAGE), { code: "tenant_full", status: 429, retryAfter: 900 });
  assert.equal(calls().length, 1);
});

test("what is refused for good is not repeated", async () => {
  for (const status of [400, 401, 403, 404, 409, 413, 422]) {
    const { client, calls } = await against(problem(status, "x"));
    await assert.rejects(client.send(MESSAGE), { status });
    assert.equal(calls().length, 1, String(status));
  }
});

test("a call that could be done twice is not repeated, unless it was never made", async () => {
  const lost = await against(undefined);
  await assert.rejects(lost.client.deadLetters.replay({ ids: [] }), { code: "unreachable" });
  const late = await against(problem(503, "late"));
  await assert.rejects(late.client.deadLetters.replay({ ids: [] }), { code: "late" });
  assert.deepEqual([lost.calls().length, late.calls().length], [1, 1]);
  const full = await against(problem(429, "too_many_calls"), { status: 200, body: '{"replayed":1}' });
  assert.deepEqual(await full.client.deadLetters.replay({ ids: [] }), { replayed: 1 });
  let tries = 0;
  const counting: typeof fetch = async (input, init) => {
    tries += 1;
    return await fetch(input, init);
  };
  const nobody = new Postrider({ server: await closedPort(), key: "k", retries: 1, fetch: counting });
  await assert.rejects(nobody.deadLetters.replay({ ids: [] }), /ECONNREFUSED/);
  assert.equal(tries, 2);
});

test("a server that does not answer ends the call in time", async () => {
  const hanging: typeof fetch = (_, init) =>
    new Promise((_resolve, reject) => init?.signal?.addEventListener("abort", () => reject(init.signal?.reason)));
  const client = new Postrider({ server: "http://127.0.0.1:1", key: "k", timeoutMs: 50, retries: 1, fetch: hanging });
  await assert.rejects(client.send(MESSAGE), (error) => {
    assert.ok(error instanceof ConnectionError);
    assert.deepEqual([error.code, error.message], ["timeout", "no answer within 50 ms (timeoutMs)"]);
    return true;
  });
  await assert.rejects(client.send(MESSAGE, { timeoutMs: 10, retries: 0 }), /within 10 ms/);
  const reason = new Error("the user left");
  const stop = new AbortController();
  setTimeout(() => stop.abort(reason), 10);
  await assert.rejects(client.send(MESSAGE, { signal: stop.signal, timeoutMs: 5000 }), reason);
  await assert.rejects(client.send(MESSAGE, { signal: AbortSignal.abort(reason) }), reason);
});

test("a wait before a repeat ends with the caller's signal", async () => {
  const { client, calls } = await against(problem(503, "full", { "retry-after": "20" }));
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 50);
  await assert.rejects(client.send(MESSAGE, { signal: stop.signal }), { name: "AbortError" });
  assert.equal(calls().length, 1);
});

test("an answer of a proxy is an error with its text", async () => {
  const { client } = await against({ status: 403, body: "<h1>Forbidden</h1>" });
  await assert.rejects(client.send(MESSAGE), (error) => {
    assert.ok(error instanceof ApiError);
    assert.deepEqual([error.code, error.status, error.detail], ["unknown", 403, "<h1>Forbidden</h1>"]);
    return true;
  });
  const redirect = await against({ status: 307, headers: { location: "http://127.0.0.1:9/" } });
  await assert.rejects(redirect.client.send(MESSAGE, { retries: 0 }), { code: "unreachable" });
});

test("options that cannot work are named", () => {
  const wrong: [object, RegExp][] = [
    [{ key: "" }, /^key: found nothing, allowed: a key of `postrider keys create`, here or in POSTRIDER_KEY$/],
    [{ key: "a b" }, /^key: found spaces/],
    [{ key: "k", server: "localhost:8080" }, /^server: found localhost/],
    [{ key: "k", server: "https://u:p@a.example" }, /^server: found https:\/\/a\.example with something else/],
    [{ key: "k", server: "??" }, /^server: found "\?\?", allowed: http/],
    [{ key: "k", timeoutMs: 0 }, /^timeoutMs: found 0, allowed: a number of at least 1$/],
    [{ key: "k", retries: -1 }, /^retries: found -1/],
  ];
  for (const [options, message] of wrong) assert.throws(() => new Postrider(options), { message });
});

test("a browser never holds an API key", () => {
  const scope = globalThis as { document?: unknown };
  scope.document = {};
  try {
    assert.throws(() => new Postrider({ key: "k" }), /^.*key: found an API key in a browser, allowed: a server only/);
  } finally {
    delete scope.document;
  }
});
