import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';

/** Values of `${NAME}`. */
export interface PlaceholderValues {
  /** Value of `${HOSTNAME}`: the machine's host name, regardless of the environment. */
  hostname: string;
  environment: Readonly<Record<string, string | undefined>>;
}

/** Text with replaced placeholders, or the problem. */
export type FilledText = { text: string } | { reason: string; instead: string };

export function hasPlaceholder(text: string): boolean {
  return text.includes('${');
}

/**
 * Replaces `${HOSTNAME}` and `${NAME}` (from the environment) in a scalar. `$${` is a literal `${`. Replaced text is
 * not expanded again. Secrets are never inserted, because messages quote the text.
 */
export function fillPlaceholders(text: string, values: PlaceholderValues): FilledText {
  let trouble: { reason: string; instead: string } | undefined;
  const filled = text.replaceAll(/\$\$\{|\$\{([^}]*)(\}?)/g, (found, name: string | undefined, end: string) => {
    if (name === undefined) return '${';
    const value = trouble ?? placeholderValue(name, end, values);
    if (typeof value === 'string') return value;
    trouble = value;
    return found;
  });
  return trouble ?? { text: filled };
}

function placeholderValue(
  name: string,
  end: string,
  values: PlaceholderValues,
): string | { reason: string; instead: string } {
  const literal = 'use $${ for a literal ${';
  if (end === '') return { reason: 'a ${ is not closed', instead: `close it with }, or ${literal}` };
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,199}$/.test(name)) {
    return { reason: `a \${…} must contain a name of letters, digits and _`, instead: `use \${NAME}, or ${literal}` };
  }
  if (name === 'HOSTNAME') return values.hostname;
  if (KEY_NAMES.includes(name as KeyName) && settingKey(name as KeyName).secret) {
    return {
      reason: `\${${name}} is a secret, and secrets are not substituted`,
      instead: 'use a file that contains it',
    };
  }
  const value = values.environment[name];
  if (value !== undefined) return value;
  return {
    reason: `\${${name}} is undefined: the service's environment does not contain ${name}`,
    instead: `set Environment=${name}=… in the unit (systemctl edit tagferry), or ${literal}`,
  };
}
