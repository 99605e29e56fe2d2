// The Node client. Holds an API key, so it refuses to run in a browser.

export { Postrider } from "./client.js";
export type { ClientOptions, CallOptions, Call } from "./transport.js";
export type { BatchOptions, BatchResult } from "./batch.js";
export {
  ApiError, ConnectionError, HandOverError, InvalidArgumentError, PostriderError, WebhookError,
  type FieldProblem, type Problem,
} from "./errors.js";
export { verifyWebhook, type VerifyOptions, type Webhook, type WebhookRequest } from "./webhook.js";
export type * from "./types.js";
