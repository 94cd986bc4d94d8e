/** What a NATS subject may not be; wildcards only where it is listened to. Templates (`{{…}}`) count as one level. */
export function wrongSubject(subject: string, wildcards: 'wildcards' | 'plain'): string | undefined {
  const levels = subject.replaceAll(/\{\{[^{}]*\}\}/g, 'x').split('.');
  if (levels.some((level) => level === '')) return 'has an empty level';
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a subject may hold none of them
  if (/[\s\u0000-\u001f\u007f]/.test(levels.join('.'))) return 'holds a space';
  if (levels.some((level) => /[+#]/.test(level))) return 'holds + or #, where NATS writes * and >';
  if (wildcards === 'plain') {
    return levels.some((level) => /[*>]/.test(level)) ? 'holds a wildcard (* or >)' : undefined;
  }
  if (levels.some((level) => level.length > 1 && /[*>]/.test(level))) return 'has a wildcard that is not a whole level';
  if (levels.slice(0, -1).includes('>')) return 'has a > that is not its end';
  return undefined;
}
