// Types and edge cases of the adapters for Express and Fastify.

import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";

import express from "express";
import Fastify from "fastify";
import { type HandOverError, Postrider } from "postrider";
import * as forExpress from "postrider/express";
import * as forFastify from "postrider/fastify";

/** Takes every message and keeps it. */
function client(): { postrider: Postrider; messages: { to: { address: Record<string, unknown> }; content: object }[] } {
  const messages: never[] = [];
  const take: typeof fetch = async (_, init) => {
    messages.push(JSON.parse(String(init?.body)) as never);
    return Response.json({ id: "msg_1", deliveries: [], duplicate: false }, { status: 202 });
  };
  return { postrider: new Postrider({ server: "http://127.0.0.1:1", key: "k", fetch: take }), messages };
}

async function listening(app: express.Express): Promise<string> {
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("express: bodies are handed over as they came, or not at all", async () => {
  const { postrider, messages } = client();
  const codes: string[] = [];
  const onRefused = (error: HandOverError): void => void codes.push(error.code);
  const app = express();
  app.use(express.json(), express.urlencoded({ extended: false }), express.text(), express.raw({ type: "image/png" }));
  app.all("/{*path}", () => {
    throw new Error("broken");
  });
  app.use(forExpress.handOverErrors({ postrider, target: "https://shop.example/api/", onRefused }));
  app.use(((error, _request, response, _next) => void response.status(500).end(String(error))) as express.ErrorRequestHandler);
  const url = await listening(app);
  const post = async (type: string, body: BodyInit): Promise<number> => {
    const headers = { "content-type": type, "x-forwarded-for": "192.0.2.1" };
    return (await fetch(`${url}/orders/1?a=b`, { method: "POST", headers, body })).status;
  };
  assert.equal(await post("application/json", '{ "a": 1 }'), 202);
  assert.equal(await post("text/plain", "größe"), 202);
  assert.equal(await post("application/x-www-form-urlencoded", "a=1"), 500);
  assert.equal(await post("application/xml", "<a/>"), 500);
  assert.equal(await post("image/png", new Uint8Array([0x89, 0xff])), 500);
  assert.equal((await fetch(`${url}/orders/1`, { method: "DELETE" })).status, 202);
  assert.equal((await fetch(`${url}/orders/1`)).status, 500);
  assert.deepEqual(messages.map((message) => message.content), [{ http: { body: '{"a":1}' } }, { http: { body: "größe" } }, { http: { body: "" } }]);
  const { address } = messages[0]!.to;
  assert.deepEqual([address["method"], address["url"]], ["POST", "https://shop.example/api/orders/1?a=b"]);
  const names = Object.keys(address["headers"] as object);
  assert.ok(names.includes("content-type") && !names.includes("host") && !names.includes("x-forwarded-for"));
  assert.deepEqual(codes, ["body", "body", "binary"]);
});

test("express: a relay takes only whole requests to what it allows", async () => {
  const { postrider, messages } = client();
  const app = express();
  app.post("/retry", express.json(), forExpress.relay({ postrider, allow: ["https://api.example/orders/", "http://b.example"] }));
  const url = await listening(app);
  const ask = async (change: object): Promise<number> => {
    const request = { method: "POST", url: "https://api.example/orders/1", headers: { "content-type": "a/b" }, body: "x", ...change };
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${url}/retry`, { method: "POST", headers, body: JSON.stringify(request) });
    await answer.text();
    return answer.status;
  };
  for (const change of [{}, { url: "https://api.example/orders" }, { url: "http://b.example/any" }, { body: undefined }]) {
    assert.equal(await ask(change), 202);
  }
  const wrong = [
    { url: "https://api.example/ordersx" }, { url: "https://api.example/orders/../admin" },
    { url: "https://api.example/orders/%2e%2e/admin" }, { url: "https://api.example.evil.example/orders/1" },
    { url: "https://u:p@api.example/orders/1" }, { url: "http://api.example/orders/1" }, { url: "/orders/1" },
    { method: "GET" }, { method: 1 }, { headers: { a: 1 } }, { headers: null }, { body: {} },
  ];
  for (const change of wrong) assert.equal(await ask(change), 422, JSON.stringify(change));
  assert.equal(await ask({ headers: { cookie: "a=1" } }), 503, "a secret");
  assert.equal(messages.length, 4);
  assert.throws(() => forExpress.relay({ postrider, allow: [] }), /allow: found nothing, allowed: origins or paths/);
  assert.throws(() => forExpress.relay({ postrider, allow: ["api.example"] }), { field: "allow[0]" });
});

test("fastify: the handlers fit its types, and its own answers stay", async () => {
  const { postrider, messages } = client();
  const app = Fastify();
  app.setErrorHandler(forFastify.handOverErrors({ postrider, target: "https://shop.example" }));
  app.post("/retry", forFastify.relay({ postrider, allow: ["https://api.example"] }));
  app.post("/orders", { schema: { body: { type: "object", required: ["order"] } } }, async () => {
    throw new Error("broken");
  });
  const payload = { order: 91 };
  const taken = await app.inject({ method: "POST", url: "/orders?a=b", payload });
  assert.deepEqual([taken.statusCode, taken.json().queued, taken.headers["postrider-message"]], [202, true, "msg_1"]);
  assert.equal(messages[0]!.to.address["url"], "https://shop.example/orders?a=b");
  assert.equal((await app.inject({ method: "POST", url: "/orders", payload: {} })).statusCode, 400);
  const own = await app.inject({ method: "POST", url: "/orders", payload, headers: { "postrider-expires": "9" } });
  assert.deepEqual([own.statusCode, own.json().message], [500, "broken"]);
  const relayed = { method: "POST", url: "https://api.example/x", headers: {} };
  assert.equal((await app.inject({ method: "POST", url: "/retry", payload: relayed })).statusCode, 202);
  assert.throws(() => forFastify.handOverErrors({ postrider, target: "shop.example" }), { field: "target" });
  assert.throws(() => forFastify.handOverErrors({ target: "https://shop.example" } as never), { field: "postrider" });
});
