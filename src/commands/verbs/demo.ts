import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Command, Option } from 'commander';
import { counted, countText } from '../../base/amounts.ts';
import { type Clock, systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../../base/errors.ts';
import { freePort } from '../../base/port-claim.ts';
import { Sandbox } from '../../sandbox/sandbox.ts';
import { AgentChild, type AgentPlace, placeIn, writeAgentFiles } from '../demo/agent.ts';
import { problemsOf } from '../demo/count.ts';
import { DEMO_TAGS, demoSeed, SimulatedPlant } from '../demo/plant.ts';
import { PUSH_EVERY_MS, Pusher } from '../demo/pusher.ts';
import { openStage, type Stage } from '../demo/stage.ts';
import { Story } from '../demo/story.ts';
import { MIN_SECONDS, timetableOf } from '../demo/timetable.ts';
import { Watch } from '../demo/watch.ts';
import { hasBrowser, openBrowser } from '../terminal/input.ts';

const MAX_SECONDS = 3_600;
const READY_POLL_MS = 200;
/** A single Ctrl-C can cause two signals (from the terminal and a wrapper) within this time. */
const SAME_SIGNAL_MS = 500;
/** Paths of Unix sockets are limited to 107 bytes. */
const MAX_TEMPORARY_FOLDER_LENGTH = 60;

interface Flags {
  seconds: string;
  stay?: boolean;
  open?: boolean;
}

/**
 * Adds `tagferry demo`: sandbox, agent and a simulated plant in one terminal. Exits with status 0 only if all values
 * arrive.
 */
export function define(program: Command): void {
  program
    .command('demo')
    .description('run sandbox, agent and simulated tags in one terminal, and show the main features in about a minute')
    .addOption(
      new Option('--seconds <n>', `duration of the demo (${MIN_SECONDS} to ${MAX_SECONDS})`).default('60', '60 s'),
    )
    .option('--stay', 'keep sandbox and agent running after the demo, until Ctrl-C')
    .option('--open', 'open the page in a browser, if this session has a desktop')
    .action(async ({ seconds, stay = false, open = false }: Flags) => {
      process.exitCode = await runDemo(secondsOf(seconds), { stay, open });
    });
}

function secondsOf(text: string): number {
  const seconds = Number(text);
  if (Number.isFinite(seconds) && seconds >= MIN_SECONDS && seconds <= MAX_SECONDS) return seconds;
  throw new UsageError(`--seconds must be a number from ${MIN_SECONDS} to ${MAX_SECONDS}, not ${text}`);
}

/** The user pressed Ctrl-C. */
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
    over.abort(new TagferryError(`the agent exited unexpectedly ${how}`, { code: 'demo.agent_ended' }));
  });
  const plant = new SimulatedPlant();
  const pusher = new Pusher(DEMO_TAGS, place.ingest, (tag, nowMs) => plant.read(tag, nowMs), clock);
  const watch = new Watch(stage, { agent, sandbox, pusher, plainEveryMs: timetable.countersMs });
  const forgetSignals = onInterruption(
    () => over.abort(new InterruptedError('interrupted', { code: 'demo.interrupted' })),
    () => agent.kill(),
  );

  // Stop the agent and restore the cursor even after an internal error.
  process.once('exit', () => {
    stage.close();
    agent.kill();
  });
  const problems: string[] = [];
  let interrupted = false;
  try {
    stage.print(
      `Demo of ${seconds} s: a platform, the agent and a plant of ${counted(DEMO_TAGS.length, 'tag')}. Ctrl-C quits.
`,
    );
    await sandbox.start();
    const { backfillValuesPerSecond } = timetable;
    writeAgentFiles(place, { platformUrl: sandbox.url, webhookPort: await freePort(), backfillValuesPerSecond });
    const page = `http://127.0.0.1:${ops.port}/#token=${ops.token}`;
    stage.print(`  Gateway page   ${page}\n`);
    const { signal } = over;
    if (open) void openWhenReady(agent, page, clock, signal);
    const parts = { stage, sandbox, agent, pusher, plant, watch, place, clock, timetable, startedMs, signal };
    const story = new Story(parts);
    await story.play().catch((error: unknown) => {
      interrupted = error instanceof InterruptedError;
      if (!interrupted) problems.push(messageOf(error));
    });
    await pusher.stop();
    watch.stop();
    if (!interrupted) problems.push(...reportCount(stage, story));
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

/** Opens the page once the agent is listening. */
async function openWhenReady(agent: AgentChild, page: string, clock: Clock, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && !(await agent.isReady())) await clock.sleep(READY_POLL_MS);
  if (signal.aborted || !hasBrowser(process.env)) return;
  await openBrowser(new URL(page));
}

interface Staying {
  place: AgentPlace;
  plant: SimulatedPlant;
  clock: Clock;
  signal: AbortSignal;
}

/** Keeps the plant running until Ctrl-C is pressed. Throws if the agent exits unexpectedly. */
async function stayUntil(stage: Stage, { place, plant, clock, signal }: Staying): Promise<void> {
  stage.print('\nThe demo is complete. Sandbox and agent keep running. Press Ctrl-C to quit.');
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

/** Prints the count and returns the problems found. */
function reportCount(stage: Stage, story: Story): string[] {
  const result = story.count();
  const { sent, acknowledged, atPlatform, missing, invented, different } = result;
  const problems = problemsOf(result);
  stage.say(
    problems.length === 0 ? 'step' : 'trouble',
    `sent ${countText(sent)}, acknowledged ${countText(acknowledged)}, on the platform ${countText(atPlatform)}, missing ${countText(missing)}`,
  );
  if (problems.length === 0)
    stage.say(
      'step',
      `compared by series and timestamp: unexpected ${countText(invented)}, different ${countText(different)}`,
    );
  return problems;
}

interface Ending {
  interrupted: boolean;
  /** Reason why the latest failed push was not acknowledged. */
  trouble: string | undefined;
  agent: AgentChild;
  place: AgentPlace;
}

/** Prints the result and deletes the temporary folder. After a failure, the agent log is kept. */
function conclude(stage: Stage, problems: readonly string[], ending: Ending): void {
  const { interrupted, trouble, agent, place } = ending;
  if (problems.length === 0) {
    rmSync(place.folder, { recursive: true, force: true });
    stage.print(interrupted ? '\nDemo interrupted, temporary files deleted.' : '\nDemo passed.');
    return;
  }
  stage.print('\nDemo failed:');
  for (const problem of problems) stage.print(`  ${problem}`);
  if (trouble !== undefined) stage.print(`  latest push that was not acknowledged: ${trouble}`);
  for (const line of agent.latestLogLines(3)) stage.print(`  log: ${line.slice(0, 300)}`);
  for (const name of readdirSync(place.folder)) {
    const path = join(place.folder, name);
    if (path !== place.log) rmSync(path, { recursive: true, force: true });
  }
  stage.print(`Agent log: ${place.log}`);
}

/** Shuts the demo down cleanly on Ctrl-C, SIGTERM or a closed terminal. A second signal kills the agent. */
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
  // The process that reads the pipe has exited (`tagferry demo | head`).
  process.stdout.on('error', interrupt);
  return () => {
    for (const signal of signals) process.off(signal, interrupt);
  };
}
