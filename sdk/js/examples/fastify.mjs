// The same shop with Fastify, and a relay for its pages: they hold no key.

import Fastify from "fastify";
import { Postrider } from "postrider";
import { handOverErrors, relay } from "postrider/fastify";

const { WAREHOUSE, PUBLIC_URL, PORT = "3000" } = process.env;
const postrider = new Postrider(); // POSTRIDER_SERVER and POSTRIDER_KEY
const app = Fastify();
const onRefused = (error) => console.error(error.message);

app.setErrorHandler(handOverErrors({ postrider, target: PUBLIC_URL ?? `http://127.0.0.1:${PORT}`, onRefused }));

app.post("/orders", async (request, reply) => {
  const stored = await fetch(WAREHOUSE, { method: "POST", body: JSON.stringify(request.body) });
  if (!stored.ok) throw new Error(`the warehouse answered ${stored.status}`);
  return reply.code(201).send({ stored: true });
});

// Add your own check of who is signed in: whoever reaches this route has requests to the warehouse made.
app.post("/retry", relay({ postrider, allow: [WAREHOUSE], onRefused }));

await app.listen({ port: Number(PORT), host: "127.0.0.1" });
console.log("listening", app.server.address().port);
