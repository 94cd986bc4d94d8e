import { valuesAt } from './content-path.ts';

const PLACE = /\{\{\s*([^{}]{1,200}?)\s*\}\}/g;
const ONLY_PLACE = /^\{\{\s*([^{}]{1,200}?)\s*\}\}$/;
const MAX_DEPTH = 16;

/**
 * Replaces templates such as `{{content.data.value}}` in a text. Paths start in the payload (`event_type`,
 * `occurred_at`, `content.…`). If a path has several values, the first one is used; a missing value is replaced with an
 * empty string.
 */
function fillText(text: string, envelope: unknown): string {
  return text.replaceAll(PLACE, (_, path: string) => textOf(valuesAt(envelope, path)[0]));
}

/**
 * Replaces templates in all strings in a YAML value. A string that consists only of a template is replaced with the
 * value itself, or with null if the value is missing.
 */
export function fillValue(value: unknown, envelope: unknown, depth = 0): unknown {
  if (depth > MAX_DEPTH) return null;
  if (typeof value === 'string') {
    const only = ONLY_PLACE.exec(value);
    return only ? (valuesAt(envelope, only[1]!)[0] ?? null) : fillText(value, envelope);
  }
  if (Array.isArray(value)) return value.map((member) => fillValue(member, envelope, depth + 1));
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [name, fillValue(member, envelope, depth + 1)]),
    );
  }
  return value;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: a topic must not contain them (MQTT 3.1.1 section 1.5.3)
const NOT_IN_LEVEL = { topic: /[/+#\u0000-\u001f\u007f]/g, subject: /[.*>\s\u0000-\u001f\u007f]/g };

/**
 * Replaces templates in an MQTT topic or NATS subject. Separators, wildcards and control characters in values are
 * replaced with `_`, so that an event cannot choose its topic.
 */
export function fillTopic(topic: string, envelope: unknown, of: keyof typeof NOT_IN_LEVEL = 'topic'): string {
  return topic.replaceAll(PLACE, (_, path: string) =>
    textOf(valuesAt(envelope, path)[0]).replaceAll(NOT_IN_LEVEL[of], '_'),
  );
}

/** Returns the body of a `post` request or message. Default: the unchanged event. */
export function fillBody(
  body: unknown,
  event: { payload: string; envelope: unknown },
): { text: string; isJson: boolean } {
  if (body === undefined) return { text: event.payload, isJson: true };
  if (typeof body === 'string') return { text: fillText(body, event.envelope), isJson: false };
  return { text: JSON.stringify(fillValue(body, event.envelope)), isJson: true };
}

function textOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
