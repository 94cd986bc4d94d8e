import { LOG_MEANINGS } from 'tagferry:log-meanings';
import { useMemo, useState } from 'preact/hooks';
import { counted } from '../base/amounts.ts';
import type { Views } from '../ops/live/views.ts';
import type { Gateway } from './gateway.ts';
import { Choice } from './parts/choice.tsx';
import { usePoll } from './poll.ts';
import { PollState, TokenRequired } from './poll-state.tsx';

const LEVELS = ['all', 'warn and above', 'error and above'] as const;
const WORSE: Readonly<Record<string, readonly string[]>> = {
  'warn and above': ['warn', 'error', 'fatal'],
  'error and above': ['error', 'fatal'],
};

interface KnownLine {
  /** Line number assigned by this page. */
  number: number;
  level: string;
  atMs: number;
  event: string;
  msg: string;
  /** Other members of the line. */
  fields: Record<string, unknown>;
  /** Searchable text in lower case. */
  text: string;
}

interface KnownLog {
  lines: KnownLine[];
  /** Number of lines that the gateway discarded before this page requested them. */
  missed: number;
}

/** Number of lines that the gateway stores in memory. */
const LINES = 1_000;
const LEVEL_NAMES: Readonly<Record<number, string>> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
  60: 'fatal',
};

/** Adds new lines to the previous ones. */
function merge(before: KnownLog | undefined, { whole, missed, lines }: Views['log']): KnownLog {
  const known = whole || !before ? { lines: [], missed: 0 } : before;
  if (lines.length === 0) return known;
  const first = (known.lines.at(-1)?.number ?? -1) + 1;
  const more = lines.map((line, at) => parsed(line, first + at));
  return { lines: [...known.lines, ...more].slice(-LINES), missed: known.missed + missed };
}

function parsed({ level, time, event, msg, ...fields }: Record<string, unknown>, number: number): KnownLine {
  const known = {
    number,
    level: typeof level === 'number' ? (LEVEL_NAMES[level] ?? String(level)) : String(level ?? ''),
    atMs: typeof time === 'number' ? time : Date.parse(String(time ?? '')),
    event: String(event ?? ''),
    msg: String(msg ?? ''),
    fields,
  };
  return { ...known, text: `${known.event} ${known.msg} ${JSON.stringify(fields)}`.toLowerCase() };
}

/** Log lines in the gateway's memory, newest first, with their meaning from docs/reference/logs.md. */
export function LogView({ gateway }: { gateway: Gateway }) {
  const [level, setLevel] = useState<(typeof LEVELS)[number]>('all');
  const [search, setSearch] = useState('');
  const isStatusOnly = gateway.sight === 'status';
  const poll = usePoll<Views['log'], KnownLog>(isStatusOnly ? undefined : 'live/log', { merge });
  const log = poll.data;
  const found = useMemo(() => {
    const levels = WORSE[level];
    const text = search.toLowerCase();
    return (log?.lines ?? [])
      .filter((line) => (levels?.includes(line.level) ?? true) && line.text.includes(text))
      .reverse();
  }, [log, level, search]);
  if (isStatusOnly) return <TokenRequired what="Log lines" />;
  return (
    <>
      <div class="tools">
        <Choice label="Levels" options={LEVELS} chosen={level} choose={(option) => setLevel(option)} />
        <input
          type="search"
          aria-label="Search events and text"
          placeholder="Event or text"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
        <p>
          {counted(found.length, 'line')}
          {log && log.missed > 0 && `, ${log.missed} not shown`}
        </p>
      </div>
      <PollState poll={poll} />
      <ol class="log">
        {found.map((line) => (
          <Line key={line.number} gateway={gateway} line={line} />
        ))}
      </ol>
    </>
  );
}

function Line({ gateway, line }: { gateway: Gateway; line: KnownLine }) {
  const meaning = LOG_MEANINGS[line.event];
  const fields = Object.entries(line.fields).map(([name, value]) => `${name}=${textOf(value)}`);
  return (
    <li class={`level-${line.level}`}>
      <p>
        <time>{Number.isFinite(line.atMs) ? gateway.time(line.atMs) : ''}</time> <strong>{line.level}</strong>{' '}
        <code>{line.event}</code> {line.msg}
      </p>
      {fields.length > 0 && <p class="fields">{fields.join('  ')}</p>}
      {meaning && (
        <p class="meaning">
          {meaning.meaning}
          {meaning.action !== '' && `. Action: ${meaning.action}`}
        </p>
      )}
    </li>
  );
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
