import type { Action } from '../../config/action-kinds.ts';
import type { ActionKind } from '../action-kind.ts';
import { fillValue } from '../template.ts';

interface WriteAction extends Action {
  kind: 'write';
  tag: string;
  key: string;
  group?: string;
  /** A number, or one template. */
  value: number | string;
}

/** Writes an absolute number to a writable value in tags.yaml. */
export const WRITE: ActionKind<WriteAction> = {
  kind: 'write',
  shape: {
    type: 'object',
    title: 'a mapping with a tag, a key and a value',
    description: 'Writes a number to a value whose entry in tags.yaml has `writable`. Requires WRITES=on.',
    examples: [{ tag: 'VALVE-1', key: 'setpoint', value: 0 }],
    additionalProperties: false,
    required: ['tag', 'key', 'value'],
    properties: {
      tag: { type: 'string', title: 'a tag name', description: 'Tag in tags.yaml.', examples: ['VALVE-1'] },
      key: { type: 'string', title: 'a key', description: 'Key of the value.', examples: ['setpoint'] },
      group: { type: 'string', title: 'a group', description: 'Group of the value, if several contain the key.' },
      value: {
        type: ['number', 'string'],
        title: 'a number or a template',
        description: 'Number to write, or one template such as {{content.data.value}}.',
        examples: [0, '{{content.data.value}}'],
      },
    },
  },
  templates: ['write/value'],
  writes: true,

  read({ write }, report) {
    const { value, ...named } = write as { tag: string; key: string; group?: string; value: number | string };
    const writable = report.writable('write', named);
    const isNumber = typeof value === 'number' || report.numberTemplate('write/value', value);
    if (writable === undefined || !isNumber) return undefined;
    const { min, max } = writable;
    if (typeof value === 'number' && (value < min || value > max)) {
      const reason = `${value} is not within the writable range of ${min} to ${max}`;
      report.problem('write/value', reason, `use a number from ${min} to ${max}`, String(value));
      return undefined;
    }
    return { kind: 'write', ...named, value };
  },

  nameOf: ({ tag, key, value }) => `write ${tag} ${key} ${value}`,
  targetOf: ({ tag, key }) => `write ${tag} ${key}`,
  recordsStart: true,

  async perform({ tag, key, group, value }, { reaction, event, position, reasonAgainstWrite, signal }, { write }) {
    const filled = fillValue(value, event.envelope);
    const number = typeof filled === 'number' ? filled : Number.NaN;
    const by = `reaction ${reaction}`;
    const order = [event.id, ...position] as const;
    const request = { tag, key, group, value: number, by, order, reasonAgainst: reasonAgainstWrite, signal };
    const { outcome, detail } = await write(request);
    if (outcome === 'written') return { outcome: 'done', detail };
    if (outcome === 'interrupted') return { outcome, detail };
    return { outcome: 'failed', detail, isFinal: outcome !== 'failed' };
  },
};
