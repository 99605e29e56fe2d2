// The examples as processes of their own, against the real server.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface, type Interface } from "node:readline";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import { type Queued, retryingFetch } from "postrider/fetch";

import { closedPort, DevServer, stop } from "./fixture.js";

const dev = new DevServer();
const EXAMPLES = fileURLToPath(new URL("../../examples/", import.meta.url));
const ORDER = { method: "POST", headers: { "content-type": "application/json" }, body: '{"order":91}' };

function run(name: string, settings: Record<string, string>): Interface {
  const env = { ...process.env, POSTRIDER_SERVER: dev.server, POSTRIDER_KEY: dev.key, ...settings };
  const child = spawn(process.execPath, [`${EXAMPLES}${name}.mjs`], { env, stdio: ["ignore", "pipe", "inherit"] });
  after(async () => await stop(child));
  return createInterface(child.stdout);
}

/** A shop on a port of its own; its address and what it prints. */
async function shop(name: string, settings: Record<string, string>): Promise<{ url: string; lines: Interface }> {
  const { port } = new URL(await closedPort());
  const lines = run(name, { PORT: port, ...settings });
  assert.deepEqual(await once(lines, "line"), [`listening ${port}`]);
  return { url: `http://127.0.0.1:${port}`, lines };
}

async function takesOrdersWhileTheWarehouseIsDown(name: string): Promise<string> {
  const warehouse = await dev.script(`${name}-warehouse`, ["503"]);
  const { url } = await shop(name, { WAREHOUSE: warehouse });
  const response = await fetch(`${url}/orders?from=test`, ORDER);
  assert.equal(response.status, 202);
  const queued = (await response.json()) as Queued;
  assert.equal(response.headers.get("postrider-message"), queued.id);
  await dev.inState(queued.deliveries[0]!.id, "sent");
  assert.equal((await dev.last(`${name}-warehouse`)).body, '{"order":91}');
  assert.equal((await fetch(`${url}/orders`, ORDER)).status, 201, "the warehouse is back");
  assert.equal((await fetch(`${url}/orders`, { ...ORDER, body: "{" })).status, 400, "the caller's mistake");
  return url;
}

test("express: a failed order is answered 202 and made again", async () => {
  const url = await takesOrdersWhileTheWarehouseIsDown("express");
  await dev.script("express-warehouse", ["503"]);
  // The fake warehouse answers each new order with its script.
  const own = { ...ORDER, body: '{"order":92}', headers: { ...ORDER.headers, "postrider-expires": "9999999999" } };
  assert.equal((await fetch(`${url}/orders`, own)).status, 500, "Postrider gets the failure and tries again itself");
  const signed = { ...ORDER, body: '{"order":93}', headers: { ...ORDER.headers, authorization: "Bearer x" } };
  assert.equal((await fetch(`${url}/orders`, signed)).status, 500, "a secret is not stored");
});

test("express: a webhook of the server is verified, and a forged one is not", async () => {
  const { secret } = (await dev.client.webhookSecrets())[0]!;
  const { url, lines } = await shop("express", { WAREHOUSE: dev.sandbox, WEBHOOK_SECRET: secret });
  const printed = once(lines, "line");
  const to = { address: { channel: "webhook", url: `${url}/hook` } } as const;
  const { deliveries } = await dev.client.send({ to, content: { title: "Shipped" } });
  const { id } = await dev.inState(deliveries[0]!.id, "sent");
  assert.deepEqual(await printed, [`webhook ${id} Shipped`]);
  const forged = { "webhook-id": id, "webhook-timestamp": String(Math.floor(Date.now() / 1000)), "webhook-signature": "v1,x" };
  assert.notEqual((await fetch(`${url}/hook`, { method: "POST", headers: forged, body: "{}" })).status, 204);
});

test("fastify: a failed order is answered 202 and made again", async () => {
  await takesOrdersWhileTheWarehouseIsDown("fastify");
});

test("fastify: a page hands its failed requests to the relay, without a key", async () => {
  const warehouse = await dev.script("page", ["503"]);
  const { url } = await shop("fastify", { WAREHOUSE: warehouse });
  const reasons: string[] = [];
  const onRefused = (error: Error): void => void reasons.push(error.message);
  const call = retryingFetch({ relay: `${url}/retry`, onRefused });
  const queued = (await (await call(warehouse, ORDER)).json()) as Queued;
  await dev.inState(queued.deliveries[0]!.id, "sent");
  assert.equal((await dev.last("page")).body, ORDER.body);
  const elsewhere = await dev.script("elsewhere", ["503"]);
  assert.equal((await call(elsewhere, ORDER)).status, 503);
  assert.deepEqual(reasons, ["the relay answered 422"]);
});

test("axios: a failed call resolves with the id of its message", async () => {
  const warehouse = await dev.script("axios-warehouse", ["503"]);
  const [line] = (await once(run("axios", { WAREHOUSE: warehouse }), "line")) as [string];
  const [status, id] = line.split(" ");
  assert.equal(status, "202");
  const { deliveries } = await dev.client.messages.get(id!);
  await dev.inState(deliveries[0]!.id, "sent");
  assert.equal((await dev.last("axios-warehouse")).body, '{"order":91}');
});
