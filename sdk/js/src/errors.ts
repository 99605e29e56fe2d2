// The errors of this package. Every one has a `code` that programs can compare.

/** One field that the server refused. */
export interface FieldProblem {
  /** A path such as `to.address.url`. */
  field: string;
  found: string;
  allowed: string;
}

/** RFC 9457 problem details, as the server writes them. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  errors?: FieldProblem[];
}

/** The base class of all errors of this package. */
export class PostriderError extends Error {
  override name = "PostriderError";
  /** What is wrong, in one word, such as `invalid_message` or `unreachable`. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** The server answered, but not with success. */
export class ApiError extends PostriderError {
  override name = "ApiError";
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly errors: FieldProblem[];
  /** The first of the refused fields. */
  readonly field: string | undefined;
  /** Seconds after which the server wants to be called again. */
  readonly retryAfter: number | undefined;

  constructor(problem: Problem, retryAfter?: number) {
    super(problem.type.replace("urn:postrider:problem:", ""), `${problem.status} ${problem.title}: ${problem.detail}`);
    this.status = problem.status;
    this.title = problem.title;
    this.detail = problem.detail;
    this.errors = problem.errors ?? [];
    this.field = this.errors[0]?.field;
    this.retryAfter = retryAfter;
  }
}

/** No answer: the server cannot be reached (`unreachable`) or took too long (`timeout`). */
export class ConnectionError extends PostriderError {
  override name = "ConnectionError";
}

/** An argument that cannot work, found before anything was sent. */
export class InvalidArgumentError extends PostriderError {
  override name = "InvalidArgumentError";
  readonly field: string;

  constructor(field: string, found: string, allowed: string) {
    super("invalid_argument", `${field}: found ${found}, allowed: ${allowed}`);
    this.field = field;
  }
}

/** A webhook that is not genuine, or too old. Answer it with 401. */
export class WebhookError extends PostriderError {
  override name = "WebhookError";
}

/** A failed request that was not handed over; `cause` has the reason of the server, if it refused. */
export class HandOverError extends PostriderError {
  override name = "HandOverError";
}

/** The error in an answer that is not a success. Also proxies answer, and not with problem details. */
export function apiError(status: number, text: string, retryAfter: number | undefined): ApiError {
  const problem = parsed(text);
  if (problem !== undefined) return new ApiError({ ...problem, status }, retryAfter);
  const detail = text.trim() === "" ? "the answer has no body" : text.trim().slice(0, 200);
  return new ApiError({ type: "unknown", title: "Not an answer of Postrider", status, detail }, retryAfter);
}

function parsed(text: string): Problem | undefined {
  try {
    const value = JSON.parse(text) as Partial<Problem> | null;
    const isProblem = [value?.type, value?.title, value?.detail].every((part) => typeof part === "string");
    return isProblem ? (value as Problem) : undefined;
  } catch {
    return undefined;
  }
}

/** The seconds of a `Retry-After` header, which is a number or a date. */
export function retryAfterSeconds(value: string | null | undefined, nowMs = Date.now()): number | undefined {
  if (value === null || value === undefined || value.trim() === "") return undefined;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return seconds >= 0 ? seconds : undefined;
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - nowMs) / 1000));
}
