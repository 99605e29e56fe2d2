// The service worker, with a fake browser around it and a real implementation of IndexedDB.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { runInNewContext } from "node:vm";

import { IDBFactory } from "fake-indexeddb";
import { startWorker, type WorkerOptions, type WorkerScope } from "postrider/worker";

interface Shown {
  title: string;
  body?: string;
  tag?: string;
  data: { id?: string; url?: string };
}

class FakeWorker {
  readonly shown: Shown[] = [];
  readonly opened: string[] = [];
  readonly focused: string[] = [];
  readonly receipts: { id: string; event: string; url?: string }[] = [];
  /** Where each of them went. */
  readonly urls: string[] = [];
  /** What the receiver of receipts answers; 0 is no answer. */
  status = 204;
  /** Whose deliveries are still being sent. */
  refused: string[] = [];
  windows: string[] = [];
  readonly scope: WorkerScope;
  readonly #listeners = new Map<string, (event: never) => void>();

  constructor() {
    this.scope = {
      location: { origin: "https://shop.example" },
      registration: {
        showNotification: async (title: string, options: object) => void this.shown.push({ title, ...options } as Shown),
      },
      clients: {
        matchAll: async () => this.windows.map((url) => ({ url, focus: async () => this.focused.push(url) })),
        openWindow: async (url: string) => this.opened.push(url),
      },
      indexedDB: new IDBFactory(),
      fetch: async (url, init) => {
        assert.deepEqual([init?.method, init?.keepalive], ["POST", true]);
        assert.equal(JSON.stringify(init?.headers), `{"content-type":"text/plain"}`, "no preflight");
        if (this.status === 0) throw new TypeError("offline");
        if (this.refused.includes(String(url))) return new Response(null, { status: 409 });
        if (this.status < 300) {
          this.receipts.push(JSON.parse(String(init?.body)) as never);
          this.urls.push(String(url));
        }
        return new Response(null, { status: this.status });
      },
      addEventListener: (type, listener) => void this.#listeners.set(type, listener),
    };
  }

  start(options: Partial<WorkerOptions> = {}): this {
    startWorker({ title: "Shop", receipts: "/receipts", ...options }, this.scope);
    return this;
  }

  async fire(type: string, event: object): Promise<void> {
    let work: Promise<unknown> = Promise.resolve();
    this.#listeners.get(type)?.({ ...event, waitUntil: (given: Promise<unknown>) => (work = given) } as never);
    await work;
  }

  async push(text: string | null | object): Promise<void> {
    const data = text === null ? null : { text: () => (typeof text === "string" ? text : JSON.stringify(text)) };
    await this.fire("push", { data });
  }

  async click(data: unknown): Promise<void> {
    await this.fire("notificationclick", { notification: { close: () => undefined, data } });
  }
}

test("a push is shown as it is and reported", async () => {
  const worker = new FakeWorker().start();
  const expires_at = Date.now() + 60_000;
  await worker.push({ id: "dlv_1", title: "Shipped", body: "Order 91", url: "https://shop.example/91", data: { a: 1 }, expires_at });
  const [{ title, body, tag, data }] = worker.shown as [Shown];
  assert.deepEqual([title, body, tag], ["Shipped", "Order 91", "dlv_1"]);
  assert.deepEqual(data, { id: "dlv_1", url: "https://shop.example/91", data: { a: 1 }, receipt: undefined });
  assert.deepEqual(worker.receipts.map(({ id, event }) => [id, event]), [["dlv_1", "displayed"]]);
});

test("a push that came too late shows what is still true and is reported as late", async () => {
  const worker = new FakeWorker().start();
  const late = { id: "dlv_1", title: "Sale ends soon", url: "/sale", expires_at: Date.now() - 1 };
  await worker.push(late);
  assert.deepEqual([worker.shown[0]!.title, worker.shown[0]!.body, worker.shown[0]!.data.url], ["Shop", "No longer current", undefined]);
  assert.deepEqual(worker.receipts.map(({ event }) => event), ["late"]);
  const own = new FakeWorker().start({ stale: { title: "Shop", body: "This offer has ended" } });
  await own.push(late);
  assert.equal(own.shown[0]!.body, "This offer has ended");
});

test("no push is dropped, whatever is in it", async () => {
  const worker = new FakeWorker().start();
  const pushes = [null, "", "plain text", "{", "[]", "7", "null", { title: 7, body: {}, id: 1, expires_at: "x" }];
  for (const push of pushes) await worker.push(push);
  assert.equal(worker.shown.length, pushes.length);
  assert.ok(worker.shown.every(({ title }) => title === "Shop"));
  assert.equal(worker.shown[2]!.body, "plain text");
  assert.deepEqual(worker.receipts, [], "nothing is reported without an id");
});

test("a click opens only what is allowed, and the window that is there", async () => {
  const worker = new FakeWorker().start({ origins: ["https://help.example/any/path"], home: "/start" });
  const opens = async (url: unknown): Promise<string | undefined> => {
    await worker.click({ id: "dlv_1", url });
    return worker.opened.pop();
  };
  assert.equal(await opens("https://shop.example/91"), "https://shop.example/91");
  assert.equal(await opens("/91"), "https://shop.example/91");
  assert.equal(await opens("https://help.example/x"), "https://help.example/x");
  const refused = ["https://evil.example/", "http://shop.example/", "javascript:alert(1)", "https://shop.example@evil.example/", undefined, 7];
  for (const url of refused) assert.equal(await opens(url), "https://shop.example/start", String(url));
  worker.windows = ["https://shop.example/91"];
  assert.equal(await opens("/91"), undefined);
  assert.deepEqual(worker.focused, ["https://shop.example/91"]);
  assert.ok(worker.receipts.every(({ event }) => event === "clicked"));
  await worker.click(null);
  await worker.fire("notificationclose", { notification: { data: { id: "dlv_2" } } });
  assert.equal(worker.receipts.at(-1)?.event, "dismissed");
});

test("receipts are kept until they get through, the newest fifty, in order", async () => {
  const worker = new FakeWorker().start();
  for (const [status, count] of [[0, 30], [503, 25]] as const) {
    worker.status = status;
    for (let i = 0; i < count; i += 1) await worker.push({ id: `dlv_${worker.shown.length}` });
  }
  assert.deepEqual([worker.shown.length, worker.receipts.length], [55, 0]);
  worker.status = 204;
  await worker.fire("activate", {});
  const expected = Array.from({ length: 50 }, (_, i) => `dlv_${i + 5}`);
  assert.deepEqual(worker.receipts.map(({ id }) => id), expected);
  await worker.fire("activate", {});
  assert.equal(worker.receipts.length, 50, "each once");
});

test("receipts go to the URL in the push, unless the page names another one or none", async () => {
  const receipt = "https://push.example/v1/receipts/abc";
  const worker = new FakeWorker();
  startWorker({ title: "Shop" }, worker.scope);
  await worker.push({ id: "dlv_1", receipt });
  await worker.click({ id: "dlv_1", receipt });
  await worker.fire("notificationclose", { notification: { data: { id: "dlv_1", receipt } } });
  assert.deepEqual(worker.receipts.map(({ event, url }) => [event, url]), [
    ["displayed", undefined],
    ["clicked", undefined],
    ["dismissed", undefined],
  ]);
  assert.deepEqual(new Set(worker.urls), new Set([receipt]));
  for (const odd of [7, "", "no URL", "http://push.example/v1/receipts/abc", "javascript:alert(1)"]) {
    await worker.push({ id: "dlv_2", receipt: odd });
  }
  assert.equal(worker.receipts.length, 3, "only over TLS");
  const own = new FakeWorker().start();
  await own.push({ id: "dlv_3", receipt });
  assert.deepEqual(own.urls, ["/receipts"]);
  const silent = new FakeWorker().start({ receipts: false });
  await silent.push({ id: "dlv_4", receipt });
  assert.deepEqual([silent.shown.length, silent.urls.length], [1, 0]);
});

test("a receipt that comes too early waits, and the others do not", async () => {
  const worker = new FakeWorker();
  startWorker({ title: "Shop" }, worker.scope);
  const url = (id: string): string => `https://push.example/v1/receipts/${id}`;
  worker.refused = [url("dlv_1")];
  for (const id of ["dlv_1", "dlv_2"]) await worker.push({ id, receipt: url(id) });
  assert.deepEqual(worker.receipts.map(({ id }) => id), ["dlv_2"]);
  worker.refused = [];
  await worker.fire("activate", {});
  assert.deepEqual(worker.receipts.map(({ id }) => id), ["dlv_2", "dlv_1"]);
});

test("a receipt that is refused for good does not hold up the others", async () => {
  const worker = new FakeWorker().start();
  worker.status = 410;
  await worker.push({ id: "dlv_1" });
  worker.status = 204;
  await worker.push({ id: "dlv_2" });
  assert.deepEqual(worker.receipts.map(({ id }) => id), ["dlv_2"]);
});

test("receipts of pushes at the same time all get through, each once", async () => {
  const worker = new FakeWorker().start();
  await Promise.all(Array.from({ length: 20 }, (_, i) => worker.push({ id: `dlv_${i}` })));
  assert.deepEqual(new Set(worker.receipts.map(({ id }) => id)).size, 20);
  assert.equal(worker.receipts.length, 20);
});

test("without a database or a receiver, pushes are shown all the same", async () => {
  const worker = new FakeWorker();
  delete worker.scope.indexedDB;
  worker.start();
  await worker.push({ id: "dlv_1" });
  worker.status = 0;
  await worker.push({ id: "dlv_2" });
  assert.deepEqual([worker.shown.length, worker.receipts.length], [2, 1]);
  const silent = new FakeWorker();
  startWorker({ title: "Shop" }, silent.scope);
  await silent.push({ id: "dlv_1" });
  assert.deepEqual([silent.shown.length, silent.receipts.length], [1, 0]);
  assert.throws(() => startWorker({} as never, silent.scope), /title: found nothing/);
});

test("the classic script does the same", async () => {
  const script = await readFile(new URL("../../dist/worker-classic.js", import.meta.url), "utf8");
  const worker = new FakeWorker();
  const scope: Record<string, unknown> = { ...worker.scope, URL };
  scope["self"] = scope;
  runInNewContext(`${script};self.PostriderWorker.startWorker({ title: "Shop", receipts: "/r" });`, scope);
  await worker.push({ id: "dlv_1", title: "Shipped" });
  await worker.click({ url: "/91" });
  assert.deepEqual([worker.shown[0]!.title, worker.opened[0], worker.receipts.length], ["Shipped", "https://shop.example/91", 1]);
});
