/** Users and groups by name: their numbers differ from machine to machine. Those of the service are local ones, made by systemd-sysusers. */
import { readFileSync } from 'node:fs';

type Kind = 'user' | 'group';

const FILES: Readonly<Record<Kind, string>> = { user: '/etc/passwd', group: '/etc/group' };

/** `''` where it has none here. */
export function nameOf(kind: Kind, id: number): string {
  return rowsOf(kind).find((row) => Number(row[2]) === id)?.[0] ?? '';
}

/** `undefined` where there is none of that name here. */
export function idOf(kind: Kind, name: string): number | undefined {
  const row = name === '' ? undefined : rowsOf(kind).find(([one]) => one === name);
  return row === undefined ? undefined : Number(row[2]);
}

function rowsOf(kind: Kind): string[][] {
  try {
    return readFileSync(FILES[kind], 'utf8')
      .split('\n')
      .map((line) => line.split(':'))
      .filter((row) => row.length > 3);
  } catch {
    return [];
  }
}
