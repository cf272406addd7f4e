// pg-boss on PostgreSQL: batches, fetched again at once while they are full, and its optional LISTEN/NOTIFY.
import { body, concurrency, load, main, payload, url } from "./harness.mjs";

const { PgBoss } = load("pg-boss");
const QUEUE = "send_email";
const boss = new PgBoss({ connectionString: url, useListenNotify: true });
boss.on("error", (problem) => console.error(String(problem)));
const leave = () => boss.stop({ graceful: false });

await main({
  async setup() {
    await boss.start();
    await boss.createQueue(QUEUE, { notify: true });
    await leave();
  },
  open: () => boss.start(),
  close: leave,
  push: (number) => boss.send(QUEUE, payload(number)),
  pushMany: (numbers) => boss.insert(QUEUE, numbers.map((number) => ({ data: payload(number) }))),
  async worker() {
    await boss.start();
    const options = { batchSize: concurrency, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
    // pg-boss stores the result of a handler only for a batch of one.
    await boss.work(QUEUE, options, async (jobs) => {
      for (const job of jobs) body(job.data.user_id);
    });
  },
});
