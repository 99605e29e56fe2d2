// Sends a stream of messages in groups of lines. Every group can be repeated, because each of its messages has a key.

import { type ApiError, apiError, InvalidArgumentError } from "./errors.js";
import type { CallOptions, Transport } from "./transport.js";
import type { Accepted, Message } from "./types.js";

export interface BatchOptions extends CallOptions {
  /** Messages per call; 500 if absent. */
  linesMax?: number;
  /** How long a message waits for others to share its call, in milliseconds; 50 if absent. */
  waitMs?: number;
}

export type BatchResult =
  | ({ index: number; ok: true } & Accepted)
  | { index: number; ok: false; error: ApiError };

/** Messages of any size may be in memory: those of so many calls at once. */
const CALLS_MAX = 4;
/** A call is made at this size, also if it has few messages. */
const CHARS_MAX = 1 << 20;

type Messages = Iterable<Message> | AsyncIterable<Message>;
type Answer = { status: number; retry_after_s?: number; error?: unknown } & Accepted;

/** One result per message, in order. Reads on only while results are read. */
export async function* batch(
  transport: Transport,
  messages: Messages,
  options: BatchOptions,
): AsyncGenerator<BatchResult, void, undefined> {
  const stop = new AbortController();
  const abort = (): void => stop.abort(options.signal?.reason);
  options.signal?.throwIfAborted();
  options.signal?.addEventListener("abort", abort, { once: true });
  const source = groups(messages, options);
  const running: Promise<BatchResult[]>[] = [];
  let coming: Promise<IteratorResult<string[]>> | undefined = quiet(source.next());
  let first = 0;
  let failure: { error: unknown } | undefined;
  const end = (error: unknown): IteratorResult<string[]> => {
    failure = { error };
    return { done: true, value: undefined };
  };
  try {
    while (coming !== undefined || running.length > 0) {
      if (coming !== undefined && running.length < CALLS_MAX && (await isFirst(coming, running[0]))) {
        const group: IteratorResult<string[]> = await coming.catch(end);
        coming = group.done === true ? undefined : quiet(source.next());
        if (group.done === true) continue;
        running.push(quiet(settle(transport, group.value, first, { ...options, signal: stop.signal })));
        first += group.value.length;
      } else {
        yield* (await running.shift()) ?? [];
      }
    }
    // What was read before the source failed is sent, and has its results.
    if (failure !== undefined) throw failure.error;
  } finally {
    options.signal?.removeEventListener("abort", abort);
    stop.abort();
    // A source that never gives its next message must not hold up the caller.
    void quiet(source.return(undefined));
  }
}

/** Whether the next group comes before the next result. */
async function isFirst(coming: Promise<unknown>, result: Promise<unknown> | undefined): Promise<boolean> {
  if (result === undefined) return true;
  const [yes, no] = [(): boolean => true, (): boolean => false];
  return await Promise.race([coming.then(yes, yes), result.then(no, no)]);
}

/** A promise whose failure is looked at later, or never. */
function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}

/** The messages as lines, in groups for one call each. */
async function* groups(messages: Messages, options: BatchOptions): AsyncGenerator<string[], void, undefined> {
  const { linesMax = 500, waitMs = 50 } = options;
  const isSlow = Symbol.asyncIterator in messages;
  const iterator = isSlow ? messages[Symbol.asyncIterator]() : messages[Symbol.iterator]();
  const read = async (): Promise<IteratorResult<Message>> => await iterator.next();
  let [lines, chars, index] = [[] as string[], 0, 0];
  let wait: Wait | undefined;
  try {
    for (let next = quiet(read()); ; ) {
      const got = wait === undefined ? await next : await Promise.race([next, wait.over]);
      if (got?.done === true) return;
      if (got !== undefined) {
        const line = lineOf(got.value, index);
        [chars, index] = [chars + line.length, index + 1];
        lines.push(line);
        if (isSlow) wait ??= new Wait(waitMs);
        next = quiet(read());
        if (lines.length < linesMax && chars < CHARS_MAX) continue;
      }
      wait = wait?.clear();
      const group = lines;
      [lines, chars] = [[], 0];
      yield group;
    }
  } finally {
    wait?.clear();
    void quiet(Promise.resolve(iterator.return?.()));
    if (lines.length > 0) yield lines;
  }
}

class Wait {
  readonly over: Promise<undefined>;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(ms: number) {
    this.over = new Promise((resolve) => (this.#timer = setTimeout(resolve, ms, undefined)));
  }

  clear(): undefined {
    clearTimeout(this.#timer);
  }
}

function lineOf(message: Message, index: number): string {
  if (typeof message !== "object" || message === null) {
    throw new InvalidArgumentError(`messages[${index}]`, String(message), "an object with `to` and `content`");
  }
  return JSON.stringify(withKey(message));
}

/** Sends the lines of a group until each has a result that a repeat would not change. */
async function settle(
  transport: Transport,
  lines: string[],
  first: number,
  options: CallOptions,
): Promise<BatchResult[]> {
  const results: BatchResult[] = [];
  let open = lines.map((_, at) => at);
  for (let number = 0; ; number += 1) {
    const answers = await ask(transport, open.map((at) => lines[at] ?? ""), options);
    const last = answers.at(-1);
    // A batch that the server ends early gives its reason in the last line.
    const answerTo = (nth: number): Answer | undefined => answers[nth] ?? last;
    open.forEach((at, nth) => (results[at] = resultOf(answerTo(nth), first + at)));
    open = open.filter((_, nth) => isTemporary(answerTo(nth)));
    const waits = answers.filter(isTemporary).map((answer) => answer.retry_after_s ?? 0);
    const askedS = Math.max(0, ...waits);
    if (open.length === 0 || number >= (options.retries ?? transport.retries)) return results;
    if (!(await transport.pause(number, askedS > 0 ? askedS : undefined, options.signal))) return results;
  }
}

async function ask(transport: Transport, lines: string[], options: CallOptions): Promise<Answer[]> {
  const text = { type: "application/x-ndjson", body: `${lines.join("\n")}\n` };
  const call = { ...options, method: "POST", path: "/v1/messages/batch", text, repeatable: true } as const;
  const answers = (await transport.text(call)).split("\n").filter((line) => line !== "");
  return answers.map((line) => JSON.parse(line) as Answer);
}

function isTemporary(answer: Answer | undefined): boolean {
  return answer !== undefined && (answer.status === 429 || answer.status === 408 || answer.status >= 500);
}

function resultOf(answer: Answer | undefined, index: number): BatchResult {
  if (answer?.status === 202) {
    const { id, deliveries, duplicate, repeated } = answer;
    return { index, ok: true, id, deliveries, duplicate, ...(repeated === undefined ? {} : { repeated }) };
  }
  const error = apiError(answer?.status ?? 502, JSON.stringify(answer?.error ?? null), answer?.retry_after_s);
  return { index, ok: false, error };
}

/**
 * The message with an idempotency key, so that it can be sent again. Campaigns and `dedupe` recognise a repeat by
 * themselves, and a key of its own would switch that off.
 */
export function withKey(message: Message): Message {
  const hasKey = message.idempotency_key !== undefined && message.idempotency_key !== null;
  if (hasKey || message.campaign !== undefined || message.dedupe === "content") return message;
  return { ...message, idempotency_key: crypto.randomUUID() };
}
