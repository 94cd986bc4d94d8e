import { REDACTED, Redactor } from '../../base/redactor.ts';
import type { ReadSettings } from '../../config/read-settings.ts';
import { AGENT_ENV_KEYS, KEY_NAMES, secretsIn, settingKey } from '../../config/setting-keys.ts';

/**
 * Takes secrets out of text that is mailed: first by where they stand (keys that hold one, and every key that nobody knows, which
 * may be a misspelt one), then by what they are (the values of this configuration, wherever they turn up).
 */
export type Redact = (text: string) => string;

/** Replaces what is known to be secret, and the password of every address. */
export function redactor(settings: ReadSettings, more: readonly string[] = []): Redact {
  const known = new Redactor();
  known.configure([...secretsIn({ ...settings }), ...more]);
  return (text) =>
    known
      .redact(text)
      .replaceAll(/\/\/[^/\s"'@]*@/g, `//${REDACTED}@`)
      .replaceAll(/\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}/gi, `$1 ${REDACTED}`);
}

/** agent.env line by line: only what is known to be no secret keeps its value, commented out or not. */
export function redactEnvFile(text: string): string {
  return text
    .split(/\r\n|\n|\r/)
    .map((line) => {
      const found = /^(\s*[#;]*\s*(?:export\s+)?)([A-Za-z_][A-Za-z0-9_.-]*)(\s*=)(.*)$/.exec(line);
      if (found) {
        const [, before, key = '', equals, value = ''] = found;
        return isPublic(key) || value.trim() === '' ? line : `${before}${key}${equals}${REDACTED}`;
      }
      return line.trim() === '' || /^\s*[#;]/.test(line) ? line : REDACTED;
    })
    .join('\n');
}

/** YAML: values of members that are named like a secret, and of headers. */
export function redactYaml(text: string): string {
  return text.replaceAll(
    /^(.*?\b(?:password|passwd|secret|token|authorization|api[-_]?key|x-[a-z-]*key|cookie)["']?\s*:\s*)(\S.*)$/gim,
    `$1${REDACTED}`,
  );
}

function isPublic(key: string): boolean {
  if (key.endsWith('_FILE') && AGENT_ENV_KEYS.includes(key)) return true;
  const known = KEY_NAMES.find((name) => name === key);
  return known !== undefined && !settingKey(known).secret;
}
