// BullMQ on Redis; completed jobs are kept (default).
import { body, concurrency, load, main, payload, url } from "./harness.mjs";

const { Queue, Worker } = load("bullmq");
const QUEUE = "bench";
const { hostname, port, pathname } = new URL(url);
const connection = { host: hostname, port: Number(port), db: Number(pathname.slice(1) || 0), maxRetriesPerRequest: null };
let queue;

await main({
  async setup() {},
  async open() {
    queue = new Queue(QUEUE, { connection });
    await queue.waitUntilReady();
  },
  close: () => queue.close(),
  push: (number) => queue.add("send_email", payload(number)),
  pushMany: (numbers) => queue.addBulk(numbers.map((number) => ({ name: "send_email", data: payload(number) }))),
  async worker() {
    const worker = new Worker(QUEUE, async (job) => body(job.data.user_id), { connection, concurrency });
    worker.on("error", (problem) => console.error(String(problem)));
    await new Promise(() => {});
  },
});
