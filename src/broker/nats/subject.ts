/** Pure: subjects of NATS, whose levels are parted by dots, with `*` for one level and `>` for all that follow. */

/** Whether every subject that `narrow` brings is brought by `wide`. */
export function subjectCovers(wide: string, narrow: string): boolean {
  const wanted = wide.split('.');
  const found = narrow.split('.');
  for (const [at, level] of wanted.entries()) {
    if (level === '>') return found.length > at;
    if (at >= found.length || found[at] === '>' || (level !== '*' && level !== found[at])) return false;
  }
  return wanted.length === found.length;
}

/** One subject that brings all of them: a durable consumer of an older server has a single filter. */
export function commonSubject(subjects: readonly string[]): string {
  return subjects.reduce((one, other) => (subjectCovers(one, other) ? one : widened(one, other)));
}

function widened(one: string, other: string): string {
  if (subjectCovers(other, one)) return other;
  const [some, others] = [one.split('.'), other.split('.')];
  const isTail = (levels: readonly string[], at: number) => at >= levels.length || levels[at] === '>';
  const common: string[] = [];
  for (let at = 0; ; at++) {
    if (isTail(some, at) && isTail(others, at) && some[at] === others[at]) {
      return (some[at] === undefined ? common : [...common, '>']).join('.');
    }
    if (isTail(some, at) || isTail(others, at)) {
      // One ends where the other goes on: only `>` in place of the level before brings both.
      const keeps = some[at] === undefined || others[at] === undefined ? common.slice(0, -1) : common;
      return [...keeps, '>'].join('.');
    }
    common.push(some[at] === others[at] ? some[at]! : '*');
  }
}

/** As a topic of MQTT with the same meaning, for what is told apart by topics: `.` and `/` change places, `*` is `+`, `>` is `#`. */
export function asTopic(subject: string): string {
  return swapped(subject).replaceAll('*', '+').replaceAll('>', '#');
}

/** The way back. */
export function asSubject(topic: string): string {
  return swapped(topic).replaceAll('+', '*').replaceAll('#', '>');
}

const swapped = (text: string) => text.replaceAll(/[./]/g, (sign) => (sign === '.' ? '/' : '.'));
