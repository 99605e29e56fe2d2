// Batches against the real server, and against one that fails.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";

import { type BatchResult, type Message, Postrider } from "postrider";

import { DevServer, serve } from "./fixture.js";

const dev = new DevServer();

function message(number: number, extra: Partial<Message> = {}): Message {
  const url = `${dev.sandbox}/http/batch`;
  return { to: { address: { channel: "http", url } }, content: { http: { body: { number } } }, ...extra };
}

async function all(results: AsyncIterable<BatchResult>): Promise<BatchResult[]> {
  const list = [];
  for await (const result of results) list.push(result);
  return list;
}

test("ten thousand messages get ten thousand results, in order, with few in memory", async () => {
  let read = 0;
  let answered = 0;
  let ahead = 0;
  async function* source(): AsyncGenerator<Message> {
    for (; read < 10_000; read += 1) {
      ahead = Math.max(ahead, read - answered);
      yield message(read);
    }
  }
  const ids = new Set<string>();
  for await (const result of dev.client.batch(source())) {
    assert.equal(result.index, answered);
    assert.ok(result.ok);
    ids.add(result.id);
    answered += 1;
  }
  assert.equal(ids.size, 10_000);
  assert.ok(ahead <= 3500, `${ahead} messages were read ahead`);
});

test("a refused message is a result between the others", async () => {
  const list = [message(1), { content: { title: "to nobody" } } as Message, message(2)];
  const results = await all(dev.client.batch(list));
  assert.deepEqual(results.map((result) => result.ok), [true, false, true]);
  const refused = results[1]!;
  assert.ok(!refused.ok);
  assert.deepEqual([refused.error.status, refused.error.field], [422, "to"]);
});

test("a message of a slow source does not wait for the next one", async () => {
  const results = dev.client.batch(
    (async function* () {
      yield message(1);
      await wait(60_000, undefined, { ref: false });
      yield message(2);
    })(),
  );
  const first = await results.next();
  assert.ok(first.value?.ok);
  await results.return();
});

test("a source that throws ends the batch with its error, after the results before", async () => {
  const results: number[] = [];
  const source = (async function* () {
    yield message(1);
    throw new Error("the file ended");
  })();
  const reading = async (): Promise<void> => {
    for await (const result of dev.client.batch(source)) results.push(result.index);
  };
  await assert.rejects(reading, /the file ended/);
  assert.deepEqual(results, [0]);
  await assert.rejects(all(dev.client.batch(["x" as unknown as Message])), { field: "messages[0]" });
});

test("lines that the server has no room for are sent again, and only those", async () => {
  const full = { type: "urn:postrider:problem:tenant_full", title: "Full", status: 429, detail: "wait" };
  const line = (index: number, id: string): object => ({ index, status: 202, id, deliveries: [], duplicate: false });
  const answers = [
    [line(0, "msg_a"), { index: 1, status: 429, retry_after_s: 0, error: full }, line(2, "msg_c")],
    [line(0, "msg_b")],
  ];
  const server = await serve((_, number) => {
    const body = (answers[number] ?? []).map((one) => `${JSON.stringify(one)}\n`).join("");
    return { status: 200, body };
  });
  const client = new Postrider({ server: server.url, key: "k" });
  const results = await all(client.batch([message(1), message(2), message(3)]));
  assert.deepEqual(results.map((one) => one.ok && one.id), ["msg_a", "msg_b", "msg_c"]);
  const sent = server.received.map((call) => call.body.toString().trim().split("\n"));
  assert.deepEqual(sent.map((lines) => lines.length), [3, 1]);
  assert.equal(sent[1]![0], sent[0]![1], "the same message under the same key");
});

test("a batch that breaks off is repeated under the same keys", async () => {
  const server = await serve((call, number) => {
    if (number === 0) return undefined;
    const lines = call.body.toString().trim().split("\n");
    const body = lines.map((_, index) => JSON.stringify({ index, status: 202, id: `msg_${index}`, deliveries: [] }));
    return { status: 200, body: `${body.join("\n")}\n` };
  });
  const client = new Postrider({ server: server.url, key: "k" });
  const results = await all(client.batch([message(1), message(2)]));
  assert.equal(results.length, 2);
  assert.deepEqual(server.received[0]!.body, server.received[1]!.body);
  assert.match(server.received[0]!.body.toString(), /"idempotency_key":"[0-9a-f-]{36}"/);
});

test("a batch that the server ends early gives its reason to the rest", async () => {
  const error = { type: "urn:postrider:problem:unauthorized", title: "No", status: 401, detail: "revoked" };
  const body = `${JSON.stringify({ index: 0, status: 401, error })}\n`;
  const server = await serve(() => ({ status: 200, body }));
  const client = new Postrider({ server: server.url, key: "k" });
  const results = await all(client.batch([message(1), message(2)]));
  assert.deepEqual(results.map((one) => !one.ok && one.error.code), ["unauthorized", "unauthorized"]);
});

test("a batch stops when its signal says so", async () => {
  const stop = new AbortController();
  const endless = (function* () {
    for (let number = 0; ; number += 1) yield message(number);
  })();
  const reading = async (): Promise<void> => {
    for await (const result of dev.client.batch(endless, { signal: stop.signal })) {
      if (result.index === 700) stop.abort(new Error("enough"));
    }
  };
  await assert.rejects(reading, /enough/);
});
