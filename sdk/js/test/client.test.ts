// The client against the real server.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError, type Message, Postrider } from "postrider";

import { DevServer, eventually } from "./fixture.js";

const dev = new DevServer();

function toHttp(name: string, extra: Partial<Message> = {}): Message {
  const url = `${dev.sandbox}/http/${name}`;
  return { to: { address: { channel: "http", url } }, content: { http: { body: { name } } }, ...extra };
}

test("a message is accepted, delivered and can be looked at", async () => {
  const accepted = await dev.client.send(toHttp("first", { tags: ["orders"] }));
  assert.match(accepted.id, /^msg_/);
  assert.equal(accepted.duplicate, false);
  const delivery = await dev.inState(accepted.deliveries[0]!.id, "sent");
  assert.equal(delivery.message, accepted.id);
  assert.equal(delivery.log[0]?.status, 200);
  const message = await dev.client.messages.get(accepted.id);
  assert.deepEqual([message.states, message.tags], [{ sent: 1 }, ["orders"]]);
  const explained = await dev.client.deliveries.explain(delivery.id);
  assert.equal(explained.state, "sent");
  assert.deepEqual(JSON.parse((await dev.last("first")).body), { name: "first" });
});

test("a message under a key is sent once, and two without a key are two", async () => {
  const keyed = toHttp("keyed", { idempotency_key: "ord-91:shipped" });
  const first = await dev.client.send(keyed);
  const second = await dev.client.send(keyed);
  assert.deepEqual([second.id, second.duplicate], [first.id, true]);
  const third = await dev.client.send(toHttp("unkeyed"));
  const fourth = await dev.client.send(toHttp("unkeyed"));
  assert.notEqual(third.id, fourth.id);
});

test("a campaign keeps its own way to recognise a repeat", async () => {
  const message = toHttp("campaign", { campaign: "autumn" });
  const first = await dev.client.send(message);
  const second = await dev.client.send(message);
  assert.deepEqual([second.id, second.duplicate], [first.id, true]);
  assert.equal((await dev.client.messages.get(first.id)).idempotency_key, undefined);
});

test("a refused message is an error with status, code and field", async () => {
  const wrong = { to: { address: { channel: "sms", phone: "12" } }, content: { title: "x" } } as const;
  await assert.rejects(dev.client.send(wrong), (error) => {
    assert.ok(error instanceof ApiError);
    assert.deepEqual([error.status, error.code, error.field], [422, "invalid_message", "to.address.phone"]);
    assert.match(error.message, /E\.164/);
    return true;
  });
  const stranger = new Postrider({ server: dev.server, key: "prk_wrong" });
  await assert.rejects(stranger.send(toHttp("x")), { name: "ApiError", status: 401 });
  await assert.rejects(dev.client.deliveries.get("dlv_x"), { status: 422, field: "id" });
  await assert.rejects(dev.client.messages.get(""), { code: "invalid_argument", field: "id" });
});

test("a scheduled message is cancelled, and its content can be read before", async () => {
  const send_at = new Date(Date.now() + 3_600_000).toISOString();
  const { id, deliveries } = await dev.client.send(toHttp("later", { send_at }));
  assert.deepEqual(await dev.client.messages.content(id), { http: { body: { name: "later" } } });
  const cancelled = await dev.client.messages.cancel(id);
  assert.deepEqual(cancelled, { cancelled: 1, in_flight: 0, already_final: 0 });
  await dev.inState(deliveries[0]!.id, "cancelled");
});

test("all deliveries are listed, page by page", async () => {
  const sent = [];
  for (let i = 0; i < 7; i += 1) sent.push((await dev.client.send(toHttp("many", { tags: ["pages"] }))).deliveries[0]!.id);
  const listed = [];
  for await (const delivery of dev.client.deliveries.list({ tag: "pages", limit: 3 })) listed.push(delivery.id);
  assert.deepEqual(listed.sort(), sent.sort());
  const page = await dev.client.deliveries.page({ tag: "pages", limit: 3 });
  assert.ok(page.items.length <= 3 && page.next !== null);
});

test("a dead letter is listed, replayed, and another one discarded", async () => {
  await dev.script("dead", ["400"]);
  const { deliveries } = await dev.client.send(toHttp("dead", { tags: ["dead"] }));
  const id = deliveries[0]!.id;
  await dev.inState(id, "failed");
  const dead = [];
  for await (const letter of dev.client.deadLetters.list({ tag: "dead", reason: "permanent" })) dead.push(letter.id);
  assert.deepEqual(dead, [id]);
  assert.deepEqual(await dev.client.deadLetters.replay({ ids: [id] }), { replayed: 1 });
  await dev.inState(id, "sent");
  await dev.script("dead-2", ["400"]);
  const other = await dev.client.send(toHttp("dead-2", { tags: ["dead-2"] }));
  await dev.inState(other.deliveries[0]!.id, "failed");
  assert.deepEqual(await dev.client.deadLetters.discard({ filter: { tag: "dead-2" } }), { discarded: 1 });
  assert.deepEqual(await dev.client.deliveries.release({ ids: [] }), { released: 0 });
});

test("addresses of a recipient are registered, used and deleted", async () => {
  const url = `${dev.sandbox}/http/registered`;
  const added = await dev.client.addresses.add({ channel: "http", url, recipient: "u-42" });
  assert.equal((await dev.client.addresses.get(added.id)).status, "active");
  const { deliveries } = await dev.client.send({ to: { recipient: "u-42" }, content: { title: "Hello" } });
  await dev.inState(deliveries[0]!.id, "sent");
  const listed = [];
  for await (const address of dev.client.addresses.list({ recipient: "u-42" })) listed.push(address.id);
  assert.deepEqual(listed, [added.id]);
  await dev.client.addresses.delete(added.id);
  await assert.rejects(dev.client.addresses.get(added.id), { status: 404, code: "not_found" });
});

test("events tell what happens, until the reader has enough", async () => {
  const seen = new Set<string>();
  const isEnough = (): boolean => seen.has("attempted") && seen.has("finished");
  // Events are not stored, so messages are sent until the stream is open.
  const sender = eventually(async () => {
    await dev.client.send(toHttp("events"));
    return isEnough() ? true : undefined;
  });
  for await (const event of dev.client.events()) {
    seen.add(event.kind);
    if (event.kind === "finished") assert.equal(event.state, "sent");
    if (isEnough()) break;
  }
  await sender;
  await assert.rejects(dev.client.events({ signal: AbortSignal.abort() }).next(), { name: "AbortError" });
});

test("keys, secrets and every other call of the API can be read", async () => {
  assert.match((await dev.client.vapidKeys())[0]!.public_key, /^B/);
  assert.match((await dev.client.webhookSecrets())[0]!.secret, /^whsec_/);
  const stats = await dev.client.call<{ version: string }>({ method: "GET", path: "/v1/stats" });
  assert.match(stats.version, /^\d/);
});
