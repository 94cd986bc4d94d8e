import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';

/** What `${NAME}` may stand for. */
export interface PlaceholderValues {
  /** `${HOSTNAME}`: of the machine, whatever a shell has under that name. */
  hostname: string;
  environment: Readonly<Record<string, string | undefined>>;
}

/** A text with its placeholders filled in, or why one cannot be. */
export type FilledText = { text: string } | { reason: string; instead: string };

export function hasPlaceholder(text: string): boolean {
  return text.includes('${');
}

/**
 * Fills in `${HOSTNAME}` and `${NAME}` of the environment in one scalar. Only `${` begins one; `$${` is a literal `${`. What is filled
 * in is not looked at again. A secret is never filled in: it would stand in messages that name what was written.
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
  const literal = 'write $${ where the two characters are meant';
  if (end === '') return { reason: 'a ${ is not closed', instead: `close it with }, or ${literal}` };
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,199}$/.test(name)) {
    return { reason: `a \${…} holds no name of letters, digits and _`, instead: `write \${NAME}, or ${literal}` };
  }
  if (name === 'HOSTNAME') return values.hostname;
  if (KEY_NAMES.includes(name as KeyName) && settingKey(name as KeyName).secret) {
    return { reason: `\${${name}} is a secret, which is filled in nowhere`, instead: 'name a file that holds it' };
  }
  const value = values.environment[name];
  if (value !== undefined) return value;
  return {
    reason: `\${${name}} is not known: the service's environment has no ${name}`,
    instead: `set Environment=${name}=… in the unit (systemctl edit tagferry), or ${literal}`,
  };
}
