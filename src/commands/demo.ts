import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Command, Option } from 'commander';
import { type Clock, systemClock } from '../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../base/errors.ts';
import { freePort } from '../base/port-claim.ts';
import { Sandbox } from '../sandbox/sandbox.ts';
import { AgentChild } from './demo/agent-child.ts';
import { type AgentPlace, placeIn, writeAgentFiles } from './demo/agent-files.ts';
import { problemsOf } from './demo/count.ts';
import { openPages } from './demo/open-pages.ts';
import { DEMO_TAGS, demoSeed, SimulatedPlant } from './demo/plant.ts';
import { PUSH_EVERY_MS, Pusher } from './demo/pusher.ts';
import { count, openStage, type Stage } from './demo/stage.ts';
import { Story } from './demo/story.ts';
import { MIN_SECONDS, timetableOf } from './demo/timetable.ts';
import { Watch } from './demo/watch.ts';

const MAX_SECONDS = 3_600;
const OPEN_LOOK_MS = 200;
/** Signals of one Ctrl-C, which may come twice (terminal and wrapper). */
const SAME_SIGNAL_MS = 500;
/** Paths of Unix sockets end at 107 bytes. */
const MAX_TEMPORARY_FOLDER_LENGTH = 60;

interface Flags {
  seconds: string;
  stay?: boolean;
  open?: boolean;
}

/** Adds `tagferry demo`: sandbox, agent and a simulated plant in one terminal. Exit 0 only where the count comes out. */
export function define(program: Command): void {
  program
    .command('demo')
    .description('sandbox, daemon and simulated tags in one terminal: the main job in about a minute')
    .addOption(
      new Option('--seconds <n>', `length of the demo (${MIN_SECONDS} to ${MAX_SECONDS})`).default('60', '60 s'),
    )
    .option('--stay', 'keep everything running after the story, until Ctrl-C')
    .option('--open', 'open the two pages in a browser, where there is a desktop')
    .action(async ({ seconds, stay = false, open = false }: Flags) => {
      process.exitCode = await runDemo(secondsOf(seconds), { stay, open });
    });
}

function secondsOf(text: string): number {
  const seconds = Number(text);
  if (Number.isFinite(seconds) && seconds >= MIN_SECONDS && seconds <= MAX_SECONDS) return seconds;
  throw new UsageError(`--seconds ${text} is not a number from ${MIN_SECONDS} to ${MAX_SECONDS}`);
}

/** Somebody pressed Ctrl-C. */
class InterruptedError extends TagferryError {}

async function runDemo(seconds: number, { stay, open }: Required<Omit<Flags, 'seconds'>>): Promise<number> {
  const clock = systemClock;
  const startedMs = clock.monotonicMs();
  const stage = openStage(process.stdout, process.env, () => clock.monotonicMs() - startedMs);
  const timetable = timetableOf(seconds, (DEMO_TAGS.length * 1000) / PUSH_EVERY_MS);
  const over = new AbortController();
  const temporary = tmpdir().length > MAX_TEMPORARY_FOLDER_LENGTH ? '/tmp' : tmpdir();
  const ops = { port: await freePort(), token: randomBytes(18).toString('base64url') };
  const place = placeIn(mkdtempSync(join(temporary, 'tagferry-demo-')), ops);
  const sandbox = new Sandbox({
    seed: demoSeed,
    accessTokenLifeS: timetable.tokenLifeS,
    limits: { perUser: 0, perApiKey: 0, perAddress: 0 },
  });
  const agent = new AgentChild(place, (how) => {
    over.abort(new TagferryError(`the agent ended by itself, ${how}`, { code: 'demo.agent_ended' }));
  });
  const plant = new SimulatedPlant();
  const pusher = new Pusher(DEMO_TAGS, place.ingest, (tag, nowMs) => plant.read(tag, nowMs), clock);
  const watch = new Watch(stage, { agent, sandbox, pusher, plainEveryMs: timetable.countersMs });
  const forgetSignals = onInterruption(
    () => over.abort(new InterruptedError('interrupted', { code: 'demo.interrupted' })),
    () => agent.kill(),
  );

  // Even a mistake in the demo itself leaves neither an agent nor a terminal without a cursor behind.
  process.once('exit', () => {
    stage.close();
    agent.kill();
  });
  const problems: string[] = [];
  let interrupted = false;
  try {
    stage.tell(`A platform, the agent and a plant of ${DEMO_TAGS.length} tags, within ${seconds} s. Ctrl-C ends it.\n`);
    await sandbox.start();
    const { backfillValuesPerSecond } = timetable;
    writeAgentFiles(place, { platformUrl: sandbox.url, webhookPort: await freePort(), backfillValuesPerSecond });
    const pages = [`http://127.0.0.1:${ops.port}/#token=${ops.token}`, `${sandbox.url}/sandbox/`];
    stage.tell(`  the gateway's page   ${pages[0]}\n  the platform's page  ${pages[1]}\n`);
    const { signal } = over;
    if (open) void openWhenReady(agent, pages, clock, signal);
    const parts = { stage, sandbox, agent, pusher, plant, watch, place, clock, timetable, startedMs, signal };
    const story = new Story(parts);
    await story.play().catch((error: unknown) => {
      interrupted = error instanceof InterruptedError;
      if (!interrupted) problems.push(messageOf(error));
    });
    await pusher.stop();
    watch.stop();
    if (!interrupted) problems.push(...sayCount(stage, story));
    if (stay && !interrupted && problems.length === 0) await stayUntil(stage, { place, plant, clock, signal });
    if (agent.isRunning) problems.push(...(await story.stop()));
  } catch (error) {
    problems.push(messageOf(error));
  } finally {
    watch.stop();
    await pusher.stop();
    await agent.stop();
    await sandbox.stop();
    stage.close();
    forgetSignals();
  }
  conclude(stage, problems, { interrupted, trouble: pusher.trouble, agent, place });
  return problems.length === 0 ? 0 : 1;
}

/** The gateway's page is there once the agent listens. */
async function openWhenReady(
  agent: AgentChild,
  pages: readonly string[],
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted && !(await agent.isReady())) await clock.sleep(OPEN_LOOK_MS);
  if (!signal.aborted) openPages(pages, process.env);
}

interface Staying {
  place: AgentPlace;
  plant: SimulatedPlant;
  clock: Clock;
  signal: AbortSignal;
}

/** Values flow on until Ctrl-C. Throws where the agent ends by itself. */
async function stayUntil(stage: Stage, { place, plant, clock, signal }: Staying): Promise<void> {
  stage.tell('\nThe story is over; everything runs on, until Ctrl-C.');
  const pusher = new Pusher(DEMO_TAGS, place.ingest, (tag, nowMs) => plant.read(tag, nowMs), clock);
  pusher.start();
  try {
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      else signal.addEventListener('abort', () => resolve(), { once: true });
    });
  } finally {
    await pusher.stop();
  }
  if (!(signal.reason instanceof InterruptedError)) throw signal.reason;
}

/** Says what the count gives, and what does not come out of it. */
function sayCount(stage: Stage, story: Story): string[] {
  const result = story.count();
  const { sent, acknowledged, atPlatform, missing, invented, different } = result;
  const problems = problemsOf(result);
  stage.say(
    problems.length === 0 ? 'step' : 'trouble',
    `sent ${count(sent)}, acknowledged ${count(acknowledged)}, at the platform ${count(atPlatform)}, missing ${count(missing)}`,
  );
  if (problems.length === 0)
    stage.say('step', `counted by series and timestamp; invented ${count(invented)}, different ${count(different)}`);
  return problems;
}

interface Ending {
  interrupted: boolean;
  /** Why the last push was not acknowledged. */
  trouble: string | undefined;
  agent: AgentChild;
  place: AgentPlace;
}

/** The last words, and the temporary folder's end: all of it, but the agent's log where something failed. */
function conclude(stage: Stage, problems: readonly string[], ending: Ending): void {
  const { interrupted, trouble, agent, place } = ending;
  if (problems.length === 0) {
    rmSync(place.folder, { recursive: true, force: true });
    stage.tell(interrupted ? '\nEnded early; nothing is left behind.' : '\nThe demo is over: everything came out.');
    return;
  }
  stage.tell('\nThe demo failed:');
  for (const problem of problems) stage.tell(`  ${problem}`);
  if (trouble !== undefined) stage.tell(`  the last push that was not acknowledged: ${trouble}`);
  for (const line of agent.lastWords(3)) stage.tell(`  log: ${line.slice(0, 300)}`);
  for (const name of readdirSync(place.folder)) {
    const path = join(place.folder, name);
    if (path !== place.log) rmSync(path, { recursive: true, force: true });
  }
  stage.tell(`The agent's log: ${place.log}`);
}

/** Ctrl-C, SIGTERM and a closed terminal end the demo in order; asked for twice, at once. */
function onInterruption(end: () => void, endNow: () => void): () => void {
  let firstMs: number | undefined;
  const interrupt = () => {
    const nowMs = systemClock.monotonicMs();
    if (firstMs === undefined) {
      firstMs = nowMs;
      end();
    } else if (nowMs - firstMs > SAME_SIGNAL_MS) endNow();
  };
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, interrupt);
  // Whoever reads the story went away (`tagferry demo | head`).
  process.stdout.on('error', interrupt);
  return () => {
    for (const signal of signals) process.off(signal, interrupt);
  };
}
