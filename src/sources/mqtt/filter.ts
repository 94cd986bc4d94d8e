import { MAX_TOPIC_BYTES } from '../../broker/discards.ts';
import { printable } from '../../config/problem.ts';

/** What of a topic to subscribe to can be matched with no message; why, and what to write instead. */
export function wrongFilter(topic: string): [reason: string, instead: string] | undefined {
  const example = 'write one topic, for example site/ft101';
  if (topic === '') return ['is empty', example];
  if (topic.includes('\u0000')) return ['holds a zero byte', example];
  if (Buffer.byteLength(topic) > MAX_TOPIC_BYTES) return [`is longer than ${MAX_TOPIC_BYTES} bytes`, example];
  if (/^\$(share|queue)\//.test(topic)) {
    const rest = topic.replace(/^\$(share\/[^/]*|queue)\//, '');
    return [
      'begins with a shared subscription',
      `write share: with the group at the source, and topic: ${printable(rest)}`,
    ];
  }
  const levels = topic.split('/');
  if (levels.some((level) => level.length > 1 && /[+#]/.test(level))) {
    return ['holds a wildcard (+ or #) that does not stand for a whole level', 'write for example site/+/flow'];
  }
  if (levels.slice(0, -1).includes('#')) return ['has a # that is not its end', 'write for example site/#'];
  return undefined;
}
