// The entries for pages in a real Chromium. Its push service is not there, so pushes come by its debugging interface.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";

import { Chromium } from "./chromium.js";
import { eventually, serve } from "./fixture.js";

const dist = (name: string): string => readFileSync(new URL(`../../dist/${name}`, import.meta.url), "utf8");

const PAGE = `<!doctype html><title>Shop</title><script type="module">
import { PushClient } from "/browser.js";
import { retryingFetch } from "/fetch.js";
window.client = (module) => new PushClient({
  worker: module ? "/sw-module.js" : "/sw.js", module, register: "/push", applicationServerKey: "BA",
});
window.retrying = retryingFetch({ relay: "/retry" });
window.ready = true;
</script>`;
const OPTIONS = '{ title: "Shop", stale: { body: "This offer has ended" }, receipts: "/receipts" }';
const FILES: Record<string, string> = {
  "/": PAGE,
  "/sw.js": `importScripts("/worker-classic.js"); PostriderWorker.startWorker(${OPTIONS});`,
  "/sw-module.js": `import { startWorker } from "/worker.js"; startWorker(${OPTIONS});`,
};

/** What the site answers to receipts. */
let receiptStatus = 204;
let browser: Chromium;

const site = await serve(({ path }) => {
  if (path === "/receipts") return { status: receiptStatus };
  if (path === "/broken") return { status: 503 };
  if (path === "/retry") return { status: 202, body: '{"queued":true,"id":"msg_1"}' };
  if (path === "/favicon.ico") return { status: 404 };
  const type = path === "/" ? "text/html" : "text/javascript";
  return { status: 200, headers: { "content-type": type }, body: FILES[path] ?? dist(path.slice(1)) };
});

before(() => void (browser = new Chromium()));
after(async () => await browser.close());

async function open(permission: "granted" | "denied" | "prompt"): Promise<void> {
  const setting = { permission: { name: "notifications" }, setting: permission, origin: site.url };
  await browser.call("Browser.setPermission", setting);
  await browser.open(site.url);
  await eventually(async () => ((await browser.evaluate<boolean>("window.ready === true")) ? true : undefined));
}

/** Receipts of a delivery, once there are as many. */
async function receipts(id: string, count: number): Promise<string[]> {
  return await eventually(async () => {
    const all = site.received.filter(({ path }) => path === "/receipts").map(({ body }) => JSON.parse(body.toString()) as { id: string; event: string });
    const own = all.filter((receipt) => receipt.id === id).map(({ event }) => event);
    return own.length >= count ? own : undefined;
  });
}

test("the state of a real browser is told", async () => {
  await open("denied");
  assert.equal(await browser.evaluate("client().state()"), "blocked");
  await open("granted");
  assert.equal(await browser.evaluate("client().state()"), "askable");
});

for (const module of [false, true]) {
  test(`a push is shown and reported by the ${module ? "module" : "classic"} worker, a late one with the stale text`, async () => {
    await open("granted");
    // Subscribing needs the push service of the browser's vendor; the worker is registered before that.
    await browser.evaluate(`client(${module}).subscribe().catch(() => undefined)`);
    await browser.evaluate("navigator.serviceWorker.ready.then(() => true)");
    const [now, id] = [Date.now(), `dlv_${module}`];
    receiptStatus = 503;
    await browser.push(site.url, JSON.stringify({ id: `${id}_1`, title: "Shipped", expires_at: now + 60_000 }));
    assert.deepEqual(await receipts(`${id}_1`, 1), ["displayed"]);
    receiptStatus = 204;
    await browser.push(site.url, JSON.stringify({ id: `${id}_2`, title: "Sale", expires_at: now - 1 }));
    assert.deepEqual(await receipts(`${id}_2`, 1), ["late"]);
    assert.deepEqual(await receipts(`${id}_1`, 2), ["displayed", "displayed"], "the kept receipt got through");
    const shown = "navigator.serviceWorker.ready.then((r) => r.getNotifications()).then((all) => all.map((n) => [n.title, n.body]))";
    const notifications = await browser.evaluate<string[][]>(shown);
    assert.deepEqual(notifications.sort(), [["Shipped", ""], ["Shop", "This offer has ended"]]);
    await browser.evaluate("navigator.serviceWorker.ready.then((r) => r.unregister())");
  });
}

test("a page hands a failed request to the relay", async () => {
  await open("granted");
  const call = 'retrying("/broken", { method: "POST", body: "größe" }).then(async (r) => [r.status, (await r.json()).id])';
  assert.deepEqual(await browser.evaluate(call), [202, "msg_1"]);
  const relayed = site.received.find(({ path }) => path === "/retry");
  const { method, url, body } = JSON.parse(relayed!.body.toString()) as Record<string, string>;
  assert.deepEqual([method, url, body], ["POST", `${site.url}/broken`, "größe"]);
});
