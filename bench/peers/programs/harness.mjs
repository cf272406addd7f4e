// Shared part of the Node peers' programs: the store, the job's body, and the commands of bench/peers/drive.py.
//
// Packages are loaded from the folder BENCH_MODULES, because programs and packages are in different folders.
import fs from "node:fs";
import { createRequire } from "node:module";

const env = process.env;
export const url = env.BENCH_URL ?? "";
export const concurrency = Number(env.BENCH_CONCURRENCY ?? 10);
export const mode = env.BENCH_MODE ?? "";
export const load = createRequire(`${env.BENCH_MODULES}/`);
export const payload = (number) => ({ user_id: number, email: "a@example.com" });

const BULK = 1_000;
const EVERY_MS = 50;

// The body of every job -----------------------------------------------------------------------------------------------

const slot = Buffer.alloc(24); // first start, jobs begun, last start
let begun = 0n;
let slotFile;
let startsFile;

export function body(number) {
  const now = process.hrtime.bigint();
  if (begun === 0n) {
    slotFile = fs.openSync(`${env.BENCH_SLOTS}/${process.pid}`, "w");
    if (env.BENCH_LAT) startsFile = fs.openSync(env.BENCH_LAT, "a");
    slot.writeBigInt64LE(now, 0);
  }
  if (startsFile !== undefined) fs.writeSync(startsFile, `${number} ${now}\n`);
  begun += 1n;
  slot.writeBigInt64LE(begun, 8);
  slot.writeBigInt64LE(now, 16);
  fs.writeSync(slotFile, slot, 0, 24, 0);
  return { ok: true };
}

// Commands ------------------------------------------------------------------------------------------------------------

const seconds = (since) => Number(process.hrtime.bigint() - since) / 1e9;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function oneByOne(peer, limit) {
  const since = process.hrtime.bigint();
  let done = 0;
  for (; seconds(since) < limit; done += 1) await peer.push(done);
  return done;
}

async function bulk(peer, count) {
  for (let start = 0; start < count; start += BULK) {
    const length = Math.min(BULK, count - start);
    await peer.pushMany(Array.from({ length }, (_, index) => start + index));
  }
  return count;
}

async function regularly(peer, limit, file) {
  await pause(200);
  const since = process.hrtime.bigint();
  const count = Math.floor((limit * 1000) / EVERY_MS);
  let lines = "";
  for (let number = 0; number < count; number += 1) {
    await pause(Math.max(0, number * EVERY_MS - seconds(since) * 1000));
    const called = process.hrtime.bigint();
    await peer.push(number);
    lines += `${number} ${called} ${process.hrtime.bigint()}\n`;
  }
  fs.writeFileSync(file, lines);
  return count;
}

export async function main(peer) {
  const [verb, amount, file] = process.argv.slice(2);
  if (verb === "worker") return peer.worker();
  if (verb === "setup") {
    await peer.setup();
    process.exit(0);
  }
  const commands = { w1: oneByOne, w2: bulk, fill: bulk, w5: regularly };
  if (!(verb in commands)) throw new Error(`there is no command ${verb}`);
  await peer.open();
  if (verb === "w1" || verb === "w5") await peer.push(-1);
  const since = process.hrtime.bigint();
  const n = await commands[verb](peer, Number(amount), file);
  console.log(JSON.stringify({ n, secs: seconds(since) }));
  await peer.close();
  process.exit(0);
}
