import { useState } from 'preact/hooks';
import type { Allowed, SiteView } from '../../sandbox/live/sandbox-events.ts';
import type { Model } from './model.ts';

const TYPES = ['can_read', 'can_update', 'can_delete', 'can_permit'] as const satisfies readonly (keyof Allowed)[];

interface Subject {
  type: 'Asset' | 'Instrumentation';
  id: number;
  name: string;
  allowed: Allowed;
}

/** Switches for a user's permissions on the selected asset and its instrumentations. */
export function Permissions({ model, site, asset }: { model: Model; site: SiteView; asset: number }) {
  const [chosen, choose] = useState<number>();
  const user = chosen ?? (site.users.find(({ isTechnical }) => isTechnical) ?? site.users[0])?.id;
  if (user === undefined) return null;
  const subjects: Subject[] = [
    ...site.assets
      .filter(({ id }) => id === asset)
      .map(({ id, serial, allowed }) => ({ type: 'Asset' as const, id, name: `asset ${serial}`, allowed })),
    ...site.instrumentations
      .filter(({ assets }) => assets.includes(asset))
      .map(({ id, tag, allowed }) => ({
        type: 'Instrumentation' as const,
        id,
        name: `instrumentation ${tag}`,
        allowed,
      })),
  ];
  return (
    <div class="permissions">
      <h3>Permissions</h3>
      <label>
        User{' '}
        <select value={String(user)} onChange={(event) => choose(Number(event.currentTarget.value))}>
          {site.users.map(({ id, name }) => (
            <option key={id} value={String(id)}>
              {name}
            </option>
          ))}
        </select>
      </label>
      {subjects.map((subject) => (
        <fieldset key={`${subject.type} ${subject.id}`}>
          <legend>{subject.name}</legend>
          {TYPES.map((type) => (
            <Switch key={type} model={model} user={user} subject={subject} type={type} />
          ))}
        </fieldset>
      ))}
    </div>
  );
}

function Switch({ model, user, subject, type }: { model: Model; user: number; subject: Subject; type: keyof Allowed }) {
  const isOn = subject.allowed[type].includes(user);
  const body = { on: { type: subject.type, id: subject.id }, user, types: [type] };
  return (
    <button
      type="button"
      role="switch"
      aria-checked={isOn}
      aria-label={`${type} on ${subject.name}`}
      onClick={() => void model.act(isOn ? 'DELETE' : 'POST', 'permissions', body)}
    >
      <span class="knob" aria-hidden="true" /> {type} <small>{isOn ? 'on' : 'off'}</small>
    </button>
  );
}
