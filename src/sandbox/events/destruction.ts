import { KIND_OF_PERMITABLE, KIND_OF_THRESHOLDABLE, type Kind, nounOf } from '../plant/records.ts';
import { dissociate } from './asset-changes.ts';
import { type ChangeRoom, drop } from './change-room.ts';
import { setAddOnLink } from './product-changes.ts';

/**
 * Destroys an object with everything that hangs on it: associations and add-on links are told as destroyed, permissions,
 * owners and places in relations fall away, and what is then no longer inherited disappears. Of objects themselves only
 * an asset's end is told, to technical users with the reporting role that could read it (spec 6.3).
 */
export function destroy(room: ChangeRoom, kind: Kind, id: number): void {
  room.found(kind, id);
  const reports = kind === 'assets' ? reportsOf(room, id) : [];
  endLinks(room, kind, id);
  room.visibility.during(() => {
    room.plant.delete(kind, id);
    leaveRelations(room, kind, id);
    leavePermissions(room, kind, id);
  });
  room.told(`${nounOf(kind)} ${id} is destroyed`);
  for (const { user, content } of reports) {
    room.announcer.announce({
      type: 'asset_disappeared',
      audience: (other) => other === user,
      content: () => content,
    });
  }
}

function reportsOf(room: ChangeRoom, id: number) {
  const reporters = new Set(room.plant.all('userroles').flatMap((role) => (role.reporting ? role.users : [])));
  return [...reporters]
    .filter((user) => room.mayRead(user, { type: 'Asset', id }))
    .map((user) => ({ user, content: room.visibility.assetContent(id, user) }));
}

/** Links whose end is an event of its own, told while both ends are there. */
function endLinks(room: ChangeRoom, kind: Kind, id: number): void {
  if (kind === 'assets') {
    for (const one of room.plant.all('instrumentations')) if (one.assets.includes(id)) dissociate(room, id, one.id);
  }
  if (kind === 'instrumentations') {
    for (const asset of [...(room.plant.get('instrumentations', id)?.assets ?? [])]) dissociate(room, asset, id);
  }
  if (kind === 'nodes') {
    for (const addOn of room.plant.all('add_ons'))
      if (addOn.nodes.includes(id)) setAddOnLink(room, addOn.id, id, false);
  }
  if (kind === 'add_ons') {
    for (const node of [...(room.plant.get('add_ons', id)?.nodes ?? [])]) setAddOnLink(room, id, node, false);
  }
}

function leaveRelations({ plant }: ChangeRoom, kind: Kind, id: number): void {
  if (kind === 'assets') {
    for (const node of plant.all('nodes')) drop(node.assets, id);
    for (const asset of plant.all('assets')) if (asset.parent === id) delete asset.parent;
  }
  if (kind === 'users') {
    for (const group of plant.all('usergroups')) drop(group.members, id);
    for (const tenant of plant.all('tenants')) for (const list of [tenant.admins, tenant.users]) drop(list, id);
    for (const role of plant.all('userroles')) drop(role.users, id);
  }
  if (kind === 'client_applications') {
    for (const key of plant.all('api_keys')) if (key.client_application === id) plant.delete('api_keys', key.id);
  }
  if (kind === 'assets' || kind === 'instrumentations' || kind === 'documents') {
    for (const event of plant.all('events')) drop(event[kind], id);
  }
  for (const threshold of plant.all('thresholds')) {
    if (KIND_OF_THRESHOLDABLE[threshold.thresholdable_type] === kind && threshold.thresholdable_id === id) {
      plant.delete('thresholds', threshold.id);
    }
  }
}

/** Permissions on the object and, for users and usergroups, those that they hold. */
function leavePermissions({ plant, owners }: ChangeRoom, kind: Kind, id: number): void {
  const isIt = (permitable: { type: keyof typeof KIND_OF_PERMITABLE; id: number }) =>
    KIND_OF_PERMITABLE[permitable.type] === kind && permitable.id === id;
  for (const grant of plant.all('permissions')) {
    const holder = grant.assignable.type === 'User' ? 'users' : 'usergroups';
    if (isIt(grant.permitable) || (holder === kind && grant.assignable.id === id))
      plant.delete('permissions', grant.id);
  }
  const kept = owners.filter((owner) => !isIt(owner.permitable) && !(kind === 'users' && owner.user === id));
  owners.splice(0, owners.length, ...kept);
}
