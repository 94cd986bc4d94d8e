/**
 * Parts of the configuration that contain no secret: shown to people outside the gateway, and part of its digests.
 * Loaded at startup, so this file must not import the YAML library.
 */
import { REDACTED } from '../base/redactor.ts';
import { KEY_NAMES, settingKey } from './setting-keys.ts';

/** What is shown of a node: a text or number with every item of a list, an address without credentials, path and query, or some parts. */
export type Shown = 'all' | 'address' | Parts;

/** Parts of a mapping or list. Without any, only the name of the node is shown. */
interface Parts {
  isScalarShown?: true;
  members?: Readonly<Record<string, Shown>>;
  each?: Shown;
  items?: Shown;
}

const membersShown = (names: string): Record<string, Shown> =>
  Object.fromEntries(names.split(/\s+/).map((name) => [name, 'all']));

const SOURCE: Shown = {
  members: {
    ...membersShown(
      `ack_wait baud byte_order ca cert client_id connections creds csv decimal durable encoding every form format group header host keep
      key member mode ordered parity password_file pattern period primary_host qos rebirth security separator session_expiry settle
      share simulate skip_lines stop_bits stream tail time_column time_format time_from timeout trust unit user_cert user_key username
      version zone`,
    ),
    modbus: 'address',
    mqtt: 'address',
    nats: 'address',
    sparkplug: 'address',
    opcua: 'address',
    exec: {},
  },
};
const VALUES: Shown = {
  each: {
    members: {
      ...membersShown(
        `at bit byte_order column deadband every from group high index low max_silence metric node offset on_change on_failure queue
      reading register scale shape status subject time time_from time_property time_unit topic trigger type`,
      ),
      unit: { isScalarShown: true, members: membersShown('code') },
    },
  },
};
export const TAGS: Shown = {
  members: {
    sources: { each: SOURCE },
    like: { each: VALUES },
    tags: { each: { members: { asset: 'all', instrumentation: 'all', like: 'all', values: VALUES } } },
  },
};
const ACTION: Shown = {
  members: {
    run: {},
    body: {},
    post: 'address',
    publish: { members: { ...membersShown('to topic retain'), body: {} } },
    headers: { each: {} },
    ...membersShown('log timeout working_folder'),
  },
};
const CONDITION: Shown = { isScalarShown: true, items: 'all', members: membersShown('above below') };
export const REACTIONS: Shown = {
  members: {
    reactions: {
      items: {
        members: { ...membersShown('name on cooldown max_age'), if: { each: CONDITION }, do: { items: ACTION } },
      },
    },
  },
};

/** `mqtt://user:password@host:1883/path?query` as `mqtt://***@host:1883/***`; each of several with commas. */
export function maskedAddress(text: string, isPathShown = false): string {
  if (/^rtu:\/[\w/.:-]+$/.test(text)) return text;
  return text
    .split(',')
    .map((one) => {
      const parts = /^(\s*[a-z][a-z0-9+.-]*:\/\/)([^/?#]*@)?([^/?#@]+)(\/?[^?#@]*)([^@]*)$/is.exec(one);
      // An @ behind the first slash: an unescaped password may be on both sides of it.
      if (!parts) return REDACTED;
      const [, scheme, user, host, path = '', query] = parts;
      const shownPath = isPathShown || path.length < 2 ? path : `/${REDACTED}`;
      return `${scheme}${user ? `${REDACTED}@` : ''}${host}${shownPath}${query ? `?${REDACTED}` : ''}`;
    })
    .join(',');
}

/** The text of a setting or of its `_FILE`, without a secret. */
export function shownSetting(key: string, value: string): string {
  const setting = KEY_NAMES.find((name) => name === key);
  // `KEY_FILE` is a path.
  if (setting !== undefined && settingKey(setting).secret) return REDACTED;
  return value.includes('://') ? maskedAddress(value, true) : value;
}

/** Parsed YAML without secrets, as pairs in the order of the file. */
export function shownData(node: unknown, shown: Shown | undefined): unknown {
  const parts = typeof shown === 'object' ? shown : {};
  if (Array.isArray(node)) return node.map((one) => shownData(one, shown === 'all' ? shown : parts.items));
  if (typeof node === 'object' && node !== null) {
    return Object.entries(node).map(([name, value]) => {
      const member = parts.members && Object.hasOwn(parts.members, name) ? parts.members[name] : parts.each;
      return [member ? name : REDACTED, shownData(value, member)];
    });
  }
  if (shown === 'address') return maskedAddress(String(node));
  return shown === 'all' || parts.isScalarShown ? String(node) : REDACTED;
}
