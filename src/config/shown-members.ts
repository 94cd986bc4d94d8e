/**
 * Parts of the configuration that contain no secrets. They are shown outside the gateway and included in digests.
 * Loaded at startup, so this file must not import the YAML library.
 */
import { REDACTED } from '../base/redactor.ts';
import { KEY_NAMES, settingKey } from './setting-keys.ts';

/** Visible part of a node: a scalar or list, an address without credentials, path and query, or selected members. */
export type Shown = 'all' | 'address' | Parts;

/** Parts of a mapping or list. If empty, only the name of the node is shown. */
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
      `ack_wait baud byte_order ca cert client_id close_after_poll connections creds csv decimal durable encoding every form format
      framing group header history host keep key last_line max_registers member mode name_column no_value ordered parity password_file pattern pause period
      primary_host qos quality_column rebirth retained security separator session_expiry settle share simulate skip_lines stop_bits stream tail thousands time_column
      time_format time_from timeout trust unit units_row user_cert user_key username value_column version zone`,
    ),
    quality_map: { each: 'all' },
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
        `at bit byte_order column deadband every from group high index length low max_silence member metric name no_value node offset on_change
      on_failure quality_column queue range reading register samples scale scale_register shape status subject time time_from time_property time_unit topic trigger type
      write_to zone`,
      ),
      map: { each: 'all' },
      writable: {
        members: { ...membersShown('min max verify tolerance'), max_rate: { members: membersShown('change per') } },
      },
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
    write: { members: membersShown('tag key group value') },
    publish: { members: { ...membersShown('to topic retain'), body: {} } },
    headers: { each: {} },
    ...membersShown('log timeout working_folder'),
  },
};
const CONDITION: Shown = { isScalarShown: true, items: 'all', members: membersShown('above below change per') };
export const REACTIONS: Shown = {
  members: {
    reactions: {
      items: {
        members: {
          ...membersShown('name on cooldown max_age'),
          if: { each: CONDITION },
          do: { items: ACTION },
          on_clear: { items: ACTION },
        },
      },
    },
  },
};

/** Masks `mqtt://user:password@host:1883/path?query` as `mqtt://***@host:1883/***`. Accepts comma-separated addresses. */
export function maskedAddress(text: string, isPathShown = false): string {
  if (/^rtu:\/[\w/.:-]+$/.test(text)) return text;
  return text
    .split(',')
    .map((one) => {
      const parts = /^(\s*[a-z][a-z0-9+.-]*:\/\/)([^/?#]*@)?([^/?#@]+)(\/?[^?#@]*)([^@]*)$/is.exec(one);
      // If an @ follows the first slash, an unescaped password may be on both sides of the slash.
      if (!parts) return REDACTED;
      const [, scheme, user, host, path = '', query] = parts;
      const shownPath = isPathShown || path.length < 2 ? path : `/${REDACTED}`;
      return `${scheme}${user ? `${REDACTED}@` : ''}${host}${shownPath}${query ? `?${REDACTED}` : ''}`;
    })
    .join(',');
}

/** Returns the text of a setting or of its `_FILE` key without secrets. */
export function shownSetting(key: string, value: string): string {
  const setting = KEY_NAMES.find((name) => name === key);
  // The value of `KEY_FILE` is a path and not a secret.
  if (setting !== undefined && settingKey(setting).secret) return REDACTED;
  return value.includes('://') ? maskedAddress(value, true) : value;
}

/** Returns parsed YAML without secrets, as pairs in file order. */
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
