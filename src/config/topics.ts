/** Returns the problem with a topic to publish to, which must not contain wildcards, or `undefined` if it is valid. */
export function wrongTopic(topic: string): string | undefined {
  if (topic === '') return 'is empty';
  if (/[+#]/.test(topic)) return 'contains a wildcard (+ or #)';
  if (topic.includes('\u0000')) return 'contains a zero byte';
  return undefined;
}

/**
 * Returns the problem with a NATS subject, or `undefined` if it is valid. Wildcards are valid only in subscriptions.
 * A template (`{{…}}`) counts as one level.
 */
export function wrongSubject(subject: string, wildcards: 'wildcards' | 'plain'): string | undefined {
  const levels = subject.replaceAll(/\{\{[^{}]*\}\}/g, 'x').split('.');
  if (levels.some((level) => level === '')) return 'has an empty level';
  // biome-ignore lint/suspicious/noControlCharactersInRegex: subjects must not contain control characters
  if (/[\s\u0000-\u001f\u007f]/.test(levels.join('.'))) return 'contains a space';
  if (levels.some((level) => /[+#]/.test(level))) return 'contains + or #; the NATS wildcards are * and >';
  if (wildcards === 'plain') {
    return levels.some((level) => /[*>]/.test(level)) ? 'contains a wildcard (* or >)' : undefined;
  }
  if (levels.some((level) => level.length > 1 && /[*>]/.test(level)))
    return 'contains a wildcard that is not a whole level';
  if (levels.slice(0, -1).includes('>')) return 'contains a > before the last level';
  return undefined;
}
