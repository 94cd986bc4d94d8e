import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { systemClock } from '../../base/clock.ts';
import { messageOf, UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import { isFull, type Mark } from '../exam/mark.ts';
import { examineReceiver, type ReceiverUnderExam } from '../exam/receiver-exam.ts';
import { type AdminClient, adminVerb, asAdmin } from './admin-client.ts';
import { duration } from './fault-verbs.ts';

interface ExamFlags {
  receiver?: string;
  client?: true;
  provoke?: true;
  signIn?: true;
  for: string;
  secretFile?: string;
  ca?: string;
}

/** Adds `tagferry sandbox exam`: what a receiver of webhooks, or a client of the API, does of what the interface asks of it. */
export function addExamVerb(sandbox: Command): void {
  const exam = adminVerb(sandbox.command('exam'))
    .description(
      'put a receiver of webhooks through what the interface asks of it; exit with 1 where a mark is missing',
    )
    .option('--receiver <url>', 'address of the receiver; it is sent events that never happened')
    .option(
      '--secret-file <file>',
      "the webhook's secret; else WEBHOOK_SECRET, or that of the webhook with this address",
    )
    .option('--ca <file>', 'PEM of an authority that its certificate is signed by')
    .option('--client', 'watch what clients send to the running sandbox')
    .option('--for <duration>', 'with --client: so long', '60s')
    .option(
      '--provoke',
      'with --client: until it has met what there is in the field: dead tokens, waits, broken connections',
    )
    .option('--sign-in', 'with --client: until a person has signed in by it, past a browser that comes back wrongly')
    .addHelpText('after', EXAMPLES);
  exam.action((flags: ExamFlags) =>
    asAdmin(exam, async (client, show) => {
      if ((flags.receiver === undefined) === (flags.client === undefined)) {
        throw new UsageError('exam of what?', 'Write `exam --receiver <url>` or `exam --client`.');
      }
      if (flags.receiver === undefined) return examineClient(client, show, flags);
      const marks = await examineReceiver(await receiverOf(client, flags.receiver, flags));
      show(marksText(marks), { full: isFull(marks), marks });
      if (!isFull(marks)) process.exitCode = 1;
    }),
  );
}

const EXAMPLES = `
Examples:
  tagferry sandbox exam --receiver http://127.0.0.1:8080/webhook
  tagferry sandbox exam --client --for 5m
  tagferry sandbox exam --client --provoke
  tagferry sandbox exam --client --provoke --sign-in
  WEBHOOK_SECRET=… tagferry sandbox exam --receiver https://receiver.example/hook --json`;

/** Where nothing was to happen in time, what was not seen is no fault; of a drill a step that was never met is one. */
async function examineClient(
  client: AdminClient,
  show: (text: string, data: unknown) => void,
  flags: ExamFlags,
): Promise<void> {
  const forMs = duration('--for', flags.for);
  const [provoke, signIn] = [flags.provoke === true, flags.signIn === true];
  await client.send('POST', 'exam', { provoke, sign_in: signIn });
  const endMs = systemClock.monotonicMs() + forMs;
  let state = await client.get<ClientExamView>('exam');
  let printed = 0;
  // A step may be over before anybody looks; what a person is to do stands there too.
  const printSteps = () => {
    const steps = state.drill?.steps ?? [];
    for (const step of steps.slice(printed)) process.stderr.write(`exam: ${step}\n`);
    printed = steps.length;
  };
  while (provoke || signIn ? state.drill?.over !== true : systemClock.monotonicMs() < endMs) {
    printSteps();
    await systemClock.sleep(500);
    state = await client.get<ClientExamView>('exam');
  }
  printSteps();
  await client.send('DELETE', 'exam');
  const { marks, drill } = state;
  const missed = drill?.missed ?? [];
  const steps = missed.map((step) => `\nNever met: ${step}.`).join('');
  // Whoever is taken through all of it has nothing left to be seen in.
  const full = isFull(marks, provoke && signIn) && missed.length === 0;
  show(`${marksText(marks)}${steps}`, { full, marks, missed });
  if (!full) process.exitCode = 1;
}

interface ClientExamView {
  marks: Mark[];
  /** `steps`: begun so far. */
  drill?: { over: boolean; steps: string[]; missed: string[] };
}

const STATES = { held: 'yes', broken: 'NO', unseen: '-' } as const;

function marksText(marks: readonly Mark[]): string {
  const rows = marks.map(({ id, section, requirement, state, seen }) => [
    STATES[state],
    id,
    section,
    requirement,
    plain(seen).slice(0, 160),
  ]);
  const count = (state: Mark['state']) => marks.filter((mark) => mark.state === state).length;
  const unseen = count('unseen') === 0 ? '' : `, ${count('unseen')} not seen`;
  const summary = `${count('held')} of ${marks.length} requirements are met${unseen}.`;
  return `${table([['met', 'name', 'section', 'requirement', 'seen'], ...rows])}\n${summary}`;
}

async function receiverOf(client: AdminClient, url: string, flags: ExamFlags): Promise<ReceiverUnderExam> {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new UsageError(
      `--receiver ${url} is no address`,
      'Write for example --receiver http://127.0.0.1:8080/webhook.',
    );
  }
  const ca = flags.ca === undefined ? {} : { certificateAuthority: readText('--ca', flags.ca) };
  return { url, secret: await secretOf(client, url, flags), ...ca };
}

/** Never from the command line, which everybody on the machine reads. */
async function secretOf(client: AdminClient, url: string, { secretFile }: ExamFlags): Promise<string> {
  if (secretFile !== undefined) return readText('--secret-file', secretFile).trim();
  const inEnvironment = process.env.WEBHOOK_SECRET;
  if (inEnvironment !== undefined && inEnvironment !== '') return inEnvironment;
  const { webhooks } = await client.get<{ webhooks: { url: string; secret: string }[] }>('webhooks');
  const found = webhooks.find((webhook) => webhook.url === new URL(url).href);
  if (found !== undefined) return found.secret;
  throw new UsageError(
    `no webhook of ${client.url} has the address ${url}`,
    'Say the secret that the receiver knows in --secret-file or WEBHOOK_SECRET.',
  );
}

function readText(flag: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`${flag} ${file} cannot be read: ${messageOf(error)}`);
  }
}
