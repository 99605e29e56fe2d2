// Verification of webhooks that the real server signed, and of forged ones.

import assert from "node:assert/strict";
import { test } from "node:test";

import { verifyWebhook, WebhookError } from "postrider";

import { eventually, type Received, serve, startServer } from "./fixture.js";

/** The vector of Standard Webhooks, which the server's own tests use, too. */
const VECTOR = {
  secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
  now: new Date(1_614_265_330_000),
  body: '{"test": 2432232314}',
  headers: {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  },
};

const client = await startServer({ env: { POSTRIDER_WEBHOOK__ED25519: "true" } });

async function delivered(): Promise<{ url: string; request: Received; id: string }> {
  const receiver = await serve(() => ({ status: 204 }));
  const url = `${receiver.url}/hook`;
  const content = { title: "Shipped", body: "Größe 42" };
  const { deliveries } = await client.send({ to: { address: { channel: "webhook", url } }, content, ttl_s: 600 });
  const request = await eventually(async () => receiver.received[0]);
  return { url, request, id: deliveries[0]!.id };
}

test("a webhook of the server is genuine under the secret of its address", async () => {
  const { url, request, id } = await delivered();
  const { secret, public_key: publicKey = "" } = (await client.webhookSecrets(url))[0]!;
  const webhook = verifyWebhook<{ type: string; content: object }>(request, { secret });
  assert.equal(webhook.id, id);
  assert.deepEqual(webhook.payload.content, { title: "Shipped", body: "Größe 42" });
  assert.ok(webhook.expiresAt!.getTime() > webhook.sentAt.getTime());
  assert.equal(verifyWebhook(request, { publicKey }).id, id, "by Ed25519");
  const [other] = await client.webhookSecrets("https://other.example/hook");
  assert.throws(() => verifyWebhook(request, { secret: other!.secret }), WebhookError);
  assert.equal(verifyWebhook(request, { secret: [other!.secret, secret] }).id, id, "one of two is enough");
});

test("a changed body, id or time is not genuine", async () => {
  const { url, request } = await delivered();
  const { secret } = (await client.webhookSecrets(url))[0]!;
  const body = Buffer.from(request.body.toString().replace("42", "43"));
  assert.throws(() => verifyWebhook({ ...request, body }, { secret }), { code: "signature" });
  for (const [name, value] of [["webhook-id", "dlv_other"], ["webhook-timestamp", String(Math.floor(Date.now() / 1000) - 9)]]) {
    const headers = { ...request.headers, [name!]: value };
    assert.throws(() => verifyWebhook({ ...request, headers }, { secret }), { code: "signature" });
  }
});

test("the vector of Standard Webhooks is met, with headers of every kind", () => {
  const { secret, now, body, headers } = VECTOR;
  const kinds = [headers, new Headers(headers), { "Webhook-Id": headers["webhook-id"], ...headers }];
  for (const given of kinds) {
    assert.deepEqual(verifyWebhook({ headers: given, body }, { secret, now }).payload, { test: 2432232314 });
  }
  const several = { ...headers, "webhook-signature": `v1,AAAA v9,x ${headers["webhook-signature"]}` };
  assert.ok(verifyWebhook({ headers: several, body: Buffer.from(body) }, { secret, now }));
});

test("a webhook is refused outside of the tolerance, before and after", () => {
  const { secret, body, headers } = VECTOR;
  const at = (seconds: number): Date => new Date(VECTOR.now.getTime() + seconds * 1000);
  for (const seconds of [-300, 300]) assert.ok(verifyWebhook({ headers, body }, { secret, now: at(seconds) }));
  for (const seconds of [-301, 301]) {
    assert.throws(() => verifyWebhook({ headers, body }, { secret, now: at(seconds) }), { code: "timestamp" });
  }
  assert.ok(verifyWebhook({ headers, body }, { secret, now: at(900), toleranceS: 1000 }));
});

test("what is no signature at all is refused", () => {
  const { secret, now, body, headers } = VECTOR;
  const mac = headers["webhook-signature"].slice(3);
  for (const wrong of ["", "v1,", "v1", mac, `v2,${mac}`, `v1a,${mac}`, `V1,${mac}`, `v1,${mac.slice(0, 20)}`]) {
    const given = { ...headers, "webhook-signature": wrong };
    assert.throws(() => verifyWebhook({ headers: given, body }, { secret, now }), WebhookError, wrong);
  }
  for (const wrong of ["", "x", "1e9", "-1", "1614265330.5", " 1614265330"]) {
    const given = { ...headers, "webhook-timestamp": wrong };
    assert.throws(() => verifyWebhook({ headers: given, body }, { secret, now }), WebhookError, wrong);
  }
  assert.throws(() => verifyWebhook({ headers: {}, body }, { secret, now }), /webhook-id: found nothing/);
});

test("mistakes of the receiver are named", () => {
  const { secret, now, body, headers } = VECTOR;
  const parsed = JSON.parse(body) as string;
  assert.throws(() => verifyWebhook({ headers, body: parsed }, { secret, now }), /body: found a parsed body, allowed: its bytes/);
  assert.throws(() => verifyWebhook({ headers, body }, { now }), /secret: found nothing, allowed: whsec_/);
  for (const wrong of ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAA", "whsec_!"]) {
    assert.throws(() => verifyWebhook({ headers, body }, { secret: wrong, now }), { field: "secret" });
  }
  assert.throws(() => verifyWebhook({ headers, body }, { publicKey: "whpk_AAAA", now }), { field: "publicKey" });
});
