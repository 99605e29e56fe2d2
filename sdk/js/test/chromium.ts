// A real Chromium over its debugging pipe: open a page, evaluate, deliver a push.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";

const FLAGS = [
  "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
  "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
  "--no-default-browser-check", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
];

interface Answer {
  id?: number;
  method?: string;
  params?: Record<string, unknown>;
  result?: Record<string, unknown>;
  error?: { message: string };
}

export class Chromium {
  readonly #child: ChildProcess;
  readonly #profile: string;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  readonly #events: Answer[] = [];
  #next = 1;
  #session: string | undefined;

  constructor() {
    this.#profile = mkdtempSync(join(tmpdir(), "postrider-chromium-"));
    const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"] as const;
    this.#child = spawn("chromium", [...FLAGS, `--user-data-dir=${this.#profile}`, "about:blank"], { stdio: [...stdio] });
    let text = "";
    (this.#child.stdio[4] as Readable).setEncoding("utf8").on("data", (chunk: string) => {
      const parts = (text + chunk).split("\0");
      text = parts.pop() ?? "";
      for (const part of parts) this.#take(JSON.parse(part) as Answer);
    });
  }

  /** A page in a tab of its own; all later calls are for it. */
  async open(url: string): Promise<void> {
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.call("Target.attachToTarget", { targetId, flatten: true });
    this.#session = sessionId as string;
    await this.call("Page.enable");
    await this.call("ServiceWorker.enable");
    await this.call("Page.navigate", { url });
  }

  async call(method: string, params: object = {}): Promise<Record<string, unknown>> {
    const id = this.#next++;
    const isOfBrowser = /^(Target|Browser)\./.test(method);
    const sessionId = isOfBrowser ? undefined : this.#session;
    const answered = new Promise<Answer>((resolve) => this.#waiting.set(id, resolve));
    (this.#child.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    const { result, error } = await answered;
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result ?? {};
  }

  /** The value of a promise in the page. */
  async evaluate<T>(expression: string): Promise<T> {
    const asked = await this.call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true, userGesture: true });
    if (asked["exceptionDetails"] !== undefined) throw new Error(JSON.stringify(asked["exceptionDetails"]));
    return (asked["result"] as { value: T }).value;
  }

  /** Delivers a push to the page's worker. */
  async push(origin: string, data: string): Promise<void> {
    const versions = this.#events.filter(({ method }) => method === "ServiceWorker.workerRegistrationUpdated");
    const known = versions.flatMap(({ params }) => params?.["registrations"] as { registrationId: string }[]);
    const registrationId = known.at(-1)?.registrationId;
    if (registrationId === undefined) throw new Error("no service worker is registered");
    await this.call("ServiceWorker.deliverPushMessage", { origin, registrationId, data });
  }

  async close(): Promise<void> {
    const ended = once(this.#child, "exit");
    // The answer may be lost with the process.
    void this.call("Browser.close").catch(() => undefined);
    await ended;
    // Its helpers end a moment later and still write until then.
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }

  #take(answer: Answer): void {
    if (answer.id === undefined) this.#events.push(answer);
    else this.#waiting.get(answer.id)?.(answer);
  }
}
