import { DISPLAY_LABEL_MEMBERS, type DisplayLabel, LABELLED_COLLECTIONS } from '../../contract/labels.ts';
import { KEY_PATTERN } from '../../contract/values.ts';
import { type Answer, type Call, idParam, isObject, objectBody } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { LabelRegistry } from '../site/records.ts';
import type { Stage } from '../stage.ts';

/**
 * Display labels (platform 2.6, 4.4). v1 (flat) and v2 (nested) change the same labels. The response contains all
 * labels of the object.
 */
export function addLabelEndpoints(router: Router, { permissions, labels }: Stage): void {
  for (const kind of LABELLED_COLLECTIONS) {
    for (const version of [1, 2] as const) {
      router.add('PATCH', `/v${version}/${kind}/:id/display_labels`, (call) => {
        const id = idParam(call, 'id');
        const object = { type: kind === 'assets' ? ('Asset' as const) : ('Instrumentation' as const), id };
        permissions.require(call.caller.user, 'can_update', object);
        return patch(call, labels, `${kind}/${id}`, version);
      });
    }
  }
}

function patch(call: Call, labels: LabelRegistry, place: string, version: 1 | 2): Answer {
  const body = objectBody(call);
  const all = { ...labels.get(place) };
  for (const [name, value] of Object.entries(body)) {
    if (!KEY_PATTERN.test(name)) throw refusal(400, 'must be a value key', name.slice(0, 130));
    const key = name.toLowerCase();
    all[key] = version === 1 ? { ...all[key], name: text(value, name) } : { ...all[key], ...readLabel(value, name) };
  }
  labels.set(place, all);
  const shown =
    version === 2 ? all : Object.fromEntries(Object.entries(all).map(([key, one]) => [key, one.name ?? '']));
  return { status: 200, body: shown, story: `labels of ${Object.keys(body).join(', ').slice(0, 80)} set` };
}

function text(value: unknown, attribute: string): string {
  if (typeof value !== 'string') throw refusal(400, 'must be text', attribute);
  return value;
}

function readLabel(value: unknown, key: string): DisplayLabel {
  if (!isObject(value)) throw refusal(400, 'must be an object', key);
  for (const [name, member] of Object.entries(value)) {
    const wanted = (DISPLAY_LABEL_MEMBERS as Record<string, string>)[name];
    if (wanted === undefined) throw refusal(400, 'is not a label member', `${key}.${name.slice(0, 60)}`);
    const fits = wanted === 'integer' ? Number.isInteger(member) : typeof member === wanted;
    if (!fits) throw refusal(400, `must be of type ${wanted}`, `${key}.${name}`);
  }
  return value as DisplayLabel;
}
