import { KIND_OF_PERMITABLE, KIND_OF_THRESHOLDABLE, type Kind, nounOf } from '../site/records.ts';
import { dissociate } from './asset-changes.ts';
import { type ChangeContext, drop } from './change-context.ts';
import { setAddOnLink } from './product-changes.ts';

/**
 * Destroys an object with everything that hangs on it: associations and add-on links are told as destroyed, permissions,
 * owners and places in relations fall away, and what is then no longer inherited disappears. Of objects themselves only
 * an asset's end is told, to technical users with the reporting role that could read it (platform 6.3).
 */
export function destroy(context: ChangeContext, kind: Kind, id: number): void {
  context.found(kind, id);
  const reports = kind === 'assets' ? reportsOf(context, id) : [];
  endLinks(context, kind, id);
  context.visibility.during(() => {
    context.site.delete(kind, id);
    leaveRelations(context, kind, id);
    leavePermissions(context, kind, id);
  });
  context.report(`${nounOf(kind)} ${id} is destroyed`);
  for (const { user, content } of reports) {
    context.announcer.announce({
      type: 'asset_disappeared',
      audience: (other) => other === user,
      content: () => content,
    });
  }
}

function reportsOf(context: ChangeContext, id: number) {
  const reporters = new Set(context.site.all('userroles').flatMap((role) => (role.reporting ? role.users : [])));
  return [...reporters]
    .filter((user) => context.mayRead(user, { type: 'Asset', id }))
    .map((user) => ({ user, content: context.visibility.assetContent(id, user) }));
}

/** Links whose end is an event of its own, told while both ends are there. */
function endLinks(context: ChangeContext, kind: Kind, id: number): void {
  if (kind === 'assets') {
    for (const one of context.site.all('instrumentations'))
      if (one.assets.includes(id)) dissociate(context, id, one.id);
  }
  if (kind === 'instrumentations') {
    for (const asset of [...(context.site.get('instrumentations', id)?.assets ?? [])]) dissociate(context, asset, id);
  }
  if (kind === 'nodes') {
    for (const addOn of context.site.all('add_ons'))
      if (addOn.nodes.includes(id)) setAddOnLink(context, addOn.id, id, false);
  }
  if (kind === 'add_ons') {
    for (const node of [...(context.site.get('add_ons', id)?.nodes ?? [])]) setAddOnLink(context, id, node, false);
  }
}

function leaveRelations({ site }: ChangeContext, kind: Kind, id: number): void {
  if (kind === 'assets') {
    for (const node of site.all('nodes')) drop(node.assets, id);
    for (const asset of site.all('assets')) if (asset.parent === id) delete asset.parent;
  }
  if (kind === 'users') {
    for (const group of site.all('usergroups')) drop(group.members, id);
    for (const tenant of site.all('tenants')) for (const list of [tenant.admins, tenant.users]) drop(list, id);
    for (const role of site.all('userroles')) drop(role.users, id);
  }
  if (kind === 'client_applications') {
    for (const key of site.all('api_keys')) if (key.client_application === id) site.delete('api_keys', key.id);
  }
  if (kind === 'assets' || kind === 'instrumentations' || kind === 'documents') {
    for (const event of site.all('events')) drop(event[kind], id);
  }
  for (const threshold of site.all('thresholds')) {
    if (KIND_OF_THRESHOLDABLE[threshold.thresholdable_type] === kind && threshold.thresholdable_id === id) {
      site.delete('thresholds', threshold.id);
    }
  }
}

/** Permissions on the object and, for users and usergroups, those that they hold. */
function leavePermissions({ site, owners }: ChangeContext, kind: Kind, id: number): void {
  const isIt = (permitable: { type: keyof typeof KIND_OF_PERMITABLE; id: number }) =>
    KIND_OF_PERMITABLE[permitable.type] === kind && permitable.id === id;
  for (const grant of site.all('permissions')) {
    const holder = grant.assignable.type === 'User' ? 'users' : 'usergroups';
    if (isIt(grant.permitable) || (holder === kind && grant.assignable.id === id)) site.delete('permissions', grant.id);
  }
  const kept = owners.filter((owner) => !isIt(owner.permitable) && !(kind === 'users' && owner.user === id));
  owners.splice(0, owners.length, ...kept);
}
