// Failed requests of fetch and axios, handed to the real server.

import assert from "node:assert/strict";
import { test } from "node:test";

import axios from "axios";
import { type HandOverError, Postrider } from "postrider";
import { handOverFailures } from "postrider/axios";
import { type Queued, retryingFetch } from "postrider/fetch";

import { closedPort, DevServer, eventually, serve, startServer } from "./fixture.js";

const dev = new DevServer();
const JSON_TYPE = { "content-type": "application/json" };

test("a request that fails for now is answered 202 and delivered later, unchanged", async () => {
  const url = await dev.script("fetch", ["503"]);
  const call = retryingFetch({ postrider: dev.client, message: { tags: ["fetch"] } });
  const body = '{"größe": 42}';
  const response = await call(url, { method: "PUT", headers: { ...JSON_TYPE, "x-trace": "7" }, body });
  assert.equal(response.status, 202);
  const queued = (await response.json()) as Queued;
  assert.equal(queued.queued, true);
  assert.equal(response.headers.get("postrider-message"), queued.id);
  await dev.inState(queued.deliveries[0]!.id, "sent");
  const last = await dev.last("fetch");
  assert.deepEqual([last.method, last.body], ["PUT", body]);
  assert.deepEqual([last.headers["content-type"], last.headers["x-trace"]], ["application/json", "7"]);
});

test("all attempts of a request have the same Idempotency-Key", async () => {
  const receiver = await serve((_, number) => ({ status: number === 0 ? 500 : 200 }));
  const call = retryingFetch({ postrider: dev.client });
  const queued = (await (await call(receiver.url, { method: "POST", body: "x" })).json()) as Queued;
  await dev.inState(queued.deliveries[0]!.id, "sent");
  const keys = receiver.received.map((request) => request.headers["idempotency-key"]);
  assert.equal(keys.length, 2);
  assert.ok(keys[0] !== undefined && keys[0] === keys[1]);
});

test("a receiver that asks for time gets it", async () => {
  const url = await dev.script("patient", ["429:60"]);
  const call = retryingFetch({ postrider: dev.client });
  const queued = (await (await call(url, { method: "POST", body: "x" })).json()) as Queued;
  const delivery = await dev.client.deliveries.get(queued.deliveries[0]!.id);
  const waits = Date.parse(delivery.due_at ?? "") - Date.now();
  assert.ok(waits > 50_000 && waits <= 60_000, `waits ${waits} ms`);
  await dev.client.messages.cancel(queued.id);
});

test("a receiver that cannot be reached is tried again by the server", async () => {
  const url = await closedPort();
  const call = retryingFetch({ postrider: dev.client });
  const response = await call(`${url}/orders`, { method: "POST", body: "x" });
  assert.equal(response.status, 202);
  await dev.client.messages.cancel(((await response.json()) as Queued).id);
});

test("reads, refusals, successes and withdrawn requests are left alone", async () => {
  const receiver = await serve(({ path }) => ({ status: Number(path.slice(1)) }));
  const call = retryingFetch({ postrider: dev.client });
  assert.equal((await call(`${receiver.url}/503`)).status, 503, "a GET needs its answer");
  for (const status of [200, 400, 404, 409, 422]) {
    assert.equal((await call(`${receiver.url}/${status}`, { method: "POST", body: "x" })).status, status);
  }
  const signal = AbortSignal.abort();
  await assert.rejects(call(`${receiver.url}/200`, { method: "POST", body: "x", signal }), { name: "AbortError" });
  const timeout = AbortSignal.timeout(1);
  const slow = retryingFetch({ postrider: dev.client, fetch: () => new Promise((_, reject) => timeout.addEventListener("abort", () => reject(timeout.reason))) });
  const response = await slow(`${receiver.url}/200`, { method: "POST", body: "x" });
  assert.equal(response.status, 202, "a timeout is a failure");
});

test("a secret is not handed over, and the original failure stays", async () => {
  const url = await dev.script("secret", ["503", "503", "503"]);
  const refused: HandOverError[] = [];
  const options = { postrider: dev.client, onRefused: (error: HandOverError) => void refused.push(error) };
  const init = { method: "POST", body: "x", headers: { authorization: "Bearer s3cret" } };
  assert.equal((await retryingFetch(options)(url, init)).status, 503);
  assert.match(refused[0]!.message, /^headers\.authorization: found a secret, .* name a `credential`, or list it/);
  const without = retryingFetch({ ...options, omitHeaders: ["Authorization"] });
  assert.equal((await without(url, init)).status, 202);
  assert.equal((await dev.last("secret")).headers["authorization"], undefined);
  const unlisted = retryingFetch({ ...options, credential: "env:NOT_LISTED" });
  assert.equal((await unlisted(await dev.script("secret", ["503"]), init)).status, 503);
  assert.match(String((refused[1]!.cause as Error).message), /credential/);
});

test("a named credential takes the place of a secret, and the receiver gets it", async () => {
  const receiver = await serve((_, number) => ({ status: number === 0 ? 503 : 200 }));
  const postrider = await startServer({
    env: { WAREHOUSE_TOKEN: "from-the-server" },
    config: `[http]\ncredentials = ["env:WAREHOUSE_TOKEN ${receiver.url} *"]\n`,
  });
  const call = retryingFetch({ postrider, credential: "env:WAREHOUSE_TOKEN" });
  const headers = { authorization: "Bearer from-the-caller" };
  assert.equal((await call(receiver.url, { method: "POST", body: "x", headers })).status, 202);
  const tokens = await eventually(async () => {
    const all = receiver.received.map((request) => request.headers.authorization);
    return all.length === 2 ? all : undefined;
  });
  assert.deepEqual(tokens, ["Bearer from-the-caller", "Bearer from-the-server"]);
});

test("binary bodies and a server that is down leave the original failure", async () => {
  const url = await dev.script("binary", ["503", "503"]);
  const codes: string[] = [];
  const onRefused = (error: HandOverError): void => void codes.push(error.code);
  const call = retryingFetch({ postrider: dev.client, onRefused });
  assert.equal((await call(url, { method: "POST", body: new Uint8Array([0xff, 0xfe]) })).status, 503);
  const nobody = new Postrider({ server: await closedPort(), key: "k", retries: 0 });
  const lost = retryingFetch({ postrider: nobody, onRefused });
  assert.equal((await lost(url, { method: "POST", body: "x" })).status, 503);
  assert.deepEqual(codes, ["binary", "refused"]);
});

test("at most three requests are handed over at a time, in order, as they were", async () => {
  let [running, most] = [0, 0];
  const bodies: unknown[] = [];
  const slow: typeof fetch = async (_, init) => {
    most = Math.max(most, (running += 1));
    bodies.push((JSON.parse(String(init?.body)) as { content: { http: { body: unknown } } }).content.http.body);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running -= 1;
    return Response.json({ id: "msg_1", deliveries: [], duplicate: false }, { status: 202 });
  };
  const postrider = new Postrider({ server: "http://127.0.0.1:1", key: "k", fetch: slow });
  const codes: string[] = [];
  const failing = async (): Promise<Response> => new Response("", { status: 500 });
  const onRefused = (error: HandOverError): void => void codes.push(error.code);
  const call = retryingFetch({ postrider, fetch: failing, waitingMax: 6, onRefused });
  const buffer = new TextEncoder().encode("0");
  const calls = Array.from({ length: 12 }, (_, number) => {
    buffer[0] = 48 + number;
    return call("http://a.example/", { method: "POST", body: buffer.slice() });
  });
  const statuses = (await Promise.all(calls)).map((response) => response.status);
  assert.equal(most, 3);
  assert.equal(statuses.filter((status) => status === 202).length, 9, "three run and six wait");
  assert.deepEqual(codes, ["full", "full", "full"]);
  assert.deepEqual(bodies, Array.from("012345678"));
});

test("axios resolves with 202, with base URL, parameters and JSON as they were", async () => {
  await dev.script("axios", ["503"]);
  const instance = axios.create({ baseURL: dev.sandbox, headers: { "x-shop": "7" } });
  const undo = handOverFailures(instance, { postrider: dev.client });
  const response = await instance.post<Queued>("/http/axios", { order: 91 }, { params: { page: 2 } });
  assert.equal(response.status, 202);
  assert.equal(response.headers["postrider-message"], response.data.id);
  await dev.inState(response.data.deliveries[0]!.id, "sent");
  const last = await dev.last("axios");
  assert.deepEqual([last.method, last.body, last.headers["x-shop"]], ["POST", '{"order":91}', "7"]);
  assert.match(last.headers["content-type"]!, /^application\/json/);
  undo();
  const url = await dev.script("axios", ["503"]);
  await assert.rejects(instance.post(url, {}), { status: 503 });
});

test("axios fails as before where nothing is handed over", async () => {
  const receiver = await serve(({ path }) => ({ status: Number(path.slice(1)) }));
  const instance = axios.create({ baseURL: receiver.url });
  handOverFailures(instance, { postrider: dev.client });
  await assert.rejects(instance.get("/503"), { status: 503 });
  await assert.rejects(instance.post("/422", {}), { status: 422 });
  await assert.rejects(instance.post("/503", {}, { headers: { cookie: "a=1" } }), { status: 503 });
  await assert.rejects(instance.post("/503", {}, { signal: AbortSignal.abort() }), { code: "ERR_CANCELED" });
  assert.throws(() => handOverFailures({} as never, { postrider: dev.client }), /axios: found something else/);
});
