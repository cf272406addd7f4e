// graphile-worker on PostgreSQL. Mode "batch": its local queue fetches many jobs at once and writes completions in batches.
import { body, concurrency, load, main, mode, payload, url } from "./harness.mjs";

const { Logger, makeWorkerUtils, run } = load("graphile-worker");
const worker = {
  connectionString: url,
  concurrentJobs: concurrency,
  maxPoolSize: concurrency + 2,
  logger: new Logger(() => () => undefined),
};
if (mode === "batch") {
  worker.localQueue = { size: 500 };
  worker.completeJobBatchDelay = 0;
  worker.failJobBatchDelay = 0;
}
const preset = { worker };
let tools;

await main({
  async setup() {
    const first = await makeWorkerUtils({ preset });
    await first.migrate();
    await first.release();
  },
  async open() {
    tools = await makeWorkerUtils({ preset });
  },
  close: () => tools.release(),
  push: (number) => tools.addJob("send_email", payload(number)),
  pushMany: (numbers) =>
    tools.addJobs(numbers.map((number) => ({ identifier: "send_email", payload: payload(number) }))),
  async worker() {
    const runner = await run({ preset, taskList: { send_email: async (given) => void body(given.user_id) } });
    await runner.promise;
  },
});
