// A shop that takes orders and tells the warehouse. While the warehouse is down, orders are answered 202 and made again
// by Postrider.

import express from "express";
import { Postrider, verifyWebhook } from "postrider";
import { handOverErrors } from "postrider/express";

const { WAREHOUSE, PUBLIC_URL, WEBHOOK_SECRET, PORT = "3000" } = process.env;
const postrider = new Postrider(); // POSTRIDER_SERVER and POSTRIDER_KEY
const app = express();

// Webhooks of Postrider itself: the signature is over the body as it came.
app.post("/hook", express.raw({ type: () => true }), (request, response) => {
  const { id, payload } = verifyWebhook(request, { secret: WEBHOOK_SECRET });
  console.log("webhook", id, payload.content.title);
  response.sendStatus(204);
});

app.use(express.json());
app.post("/orders", async (request, response) => {
  const stored = await fetch(WAREHOUSE, { method: "POST", body: JSON.stringify(request.body) });
  if (!stored.ok) throw new Error(`the warehouse answered ${stored.status}`);
  response.status(201).json({ stored: true });
});

app.use(handOverErrors({
  postrider,
  target: PUBLIC_URL ?? `http://127.0.0.1:${PORT}`,
  omitHeaders: ["cookie"],
  onRefused: (error) => console.error(error.message),
}));

const server = app.listen(Number(PORT), "127.0.0.1", () => console.log("listening", server.address().port));
