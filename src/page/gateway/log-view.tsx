import { LOG_MEANINGS } from 'tagferry:log-meanings';
import { useMemo, useState } from 'preact/hooks';
import { counted } from '../../base/amounts.ts';
import { Choice } from '../parts/choice.tsx';
import type { KnownLine } from './known-lists.ts';
import type { Model } from './model.ts';
import { TokenRequired } from './token-required.tsx';

const LEVELS = ['all', 'warn and above', 'error and above'] as const;
const WORSE: Readonly<Record<string, readonly string[]>> = {
  'warn and above': ['warn', 'error', 'fatal'],
  'error and above': ['error', 'fatal'],
};
/** Log lines in the gateway's memory, newest first, with their meaning from docs/reference/logs.md. */
export function LogView({ model }: { model: Model }) {
  const [level, setLevel] = useState<(typeof LEVELS)[number]>('all');
  const [search, setSearch] = useState('');
  const { log, hello } = model;
  const lines = log?.lines ?? [];
  const found = useMemo(() => {
    const levels = WORSE[level];
    const text = search.toLowerCase();
    return lines.filter((line) => (levels?.includes(line.level) ?? true) && line.text.includes(text)).reverse();
  }, [lines, level, search]);
  if (hello?.sight === 'status') return <TokenRequired what="Log lines" />;
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
      <ol class="log">
        {found.map((line) => (
          <Line key={line.number} model={model} line={line} />
        ))}
      </ol>
    </>
  );
}

function Line({ model, line }: { model: Model; line: KnownLine }) {
  const meaning = LOG_MEANINGS[line.event];
  const fields = Object.entries(line.fields).map(([name, value]) => `${name}=${textOf(value)}`);
  return (
    <li class={`level-${line.level}`}>
      <p>
        <time>{Number.isFinite(line.atMs) ? model.time(line.atMs) : ''}</time> <strong>{line.level}</strong>{' '}
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
