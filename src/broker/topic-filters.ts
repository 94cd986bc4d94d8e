/**
 * Filters for MQTT topics and NATS subjects. They consist of levels, and can contain wildcards for one level or for all
 * following levels.
 */

export interface TopicGrammar {
  /** Term for a topic, also used as the member name in tags.yaml. */
  name: 'topic' | 'subject';
  separator: string;
  /** Wildcard for one level. */
  one: string;
  /** Wildcard for all following levels. */
  rest: string;
  /** `a/#` also matches `a`. */
  restMatchesParent: boolean;
  /** Topics with this prefix are not matched by a leading wildcard. */
  systemPrefix?: string;
}

/** MQTT 3.1.1 and 5, section 4.7. */
export const MQTT_TOPICS: TopicGrammar = {
  name: 'topic',
  separator: '/',
  one: '+',
  rest: '#',
  restMatchesParent: true,
  systemPrefix: '$',
};

export const NATS_SUBJECTS: TopicGrammar = {
  name: 'subject',
  separator: '.',
  one: '*',
  rest: '>',
  restMatchesParent: false,
};

export function hasWildcard(filter: string, { one, rest }: TopicGrammar): boolean {
  return filter.includes(one) || filter.includes(rest);
}

/** Whether the filter `wide` matches the topic `narrow`, or every topic that the filter `narrow` matches. */
export function covers(wide: string, narrow: string, grammar: TopicGrammar): boolean {
  const { separator, one, rest, restMatchesParent, systemPrefix } = grammar;
  const wanted = wide.split(separator);
  if (systemPrefix && narrow.startsWith(systemPrefix) && (wanted[0] === one || wanted[0] === rest)) return false;
  const found = narrow.split(separator);
  for (const [at, level] of wanted.entries()) {
    if (level === rest) return restMatchesParent || found.length > at;
    if (at >= found.length || found[at] === rest || (level !== one && level !== found[at])) return false;
  }
  return wanted.length === found.length;
}

/**
 * Returns one subject that matches all given subjects, because consumers on older NATS servers have a single filter.
 */
export function commonSubject(subjects: readonly string[]): string {
  const split = subjects.map((subject) => subject.split('.'));
  const [first = []] = split;
  const isSame = (level: string, at: number) => split.every((levels) => levels[at] === level);
  const isAligned = split.every((levels) => levels.length === first.length);
  if (isAligned && split.every((levels) => levels.at(-1) !== '>')) {
    return first.map((level, at) => (isSame(level, at) ? level : '*')).join('.');
  }
  // `a.>` does not match `a`, so the common levels exclude the final level of each subject.
  const most = Math.min(...split.map((levels) => levels.length)) - 1;
  const differs = first.findIndex((level, at) => at >= most || !isSame(level, at));
  return [...first.slice(0, differs), '>'].join('.');
}
