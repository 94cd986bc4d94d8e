import type { Answers, Surroundings } from './answers.ts';
import { envValue } from './env-lines.ts';
import { firstTagLines } from './first-tag.ts';

/** What is about to be written, secrets by their names alone. */
export function summaryOf(
  { env, secrets, tag, source }: Answers,
  { directory, envText, stored }: Surroundings,
): string {
  const lines = [...env].flatMap(([key, value]) => {
    const before = envValue(envText, key);
    if (value === '' && before === '') return [];
    if (value === before) return [`  ${key}=${value}`];
    return [`  ${key}=${value}${before === '' ? '' : `  (was ${before})`}`];
  });
  const kept = [...secrets].map(([name, value]) => {
    const state = stored.get(name) === value ? 'kept as it is' : stored.has(name) ? 'another one' : 'new';
    return `  ${name.toUpperCase()}: ${state}`;
  });
  const tags = tag ? ['', `${directory}/tags.yaml:`, indented(firstTagLines(tag, source))] : [];
  return ['', `${directory}/agent.env:`, ...lines, ...kept, ...tags, ''].join('\n');
}

function indented(text: string): string {
  return text.trimEnd().replaceAll(/^(?=.)/gm, '  ');
}
