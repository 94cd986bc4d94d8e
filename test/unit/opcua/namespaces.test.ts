import { resolveNodeId } from 'node-opcua-client';
import { describe, expect, it } from 'vitest';
import { Namespaces } from '../../../src/opcua/namespaces.ts';

const NAMESPACES = new Namespaces(['http://opcfoundation.org/UA/', 'urn:a', 'http://b/?x;y%z']);

describe('OPC UA namespace table', () => {
  it.each([
    ['nsu=urn:a;s=Line;1', 'ns=1;s=Line;1'],
    ['nsu=http://b/?x%3By%25z;i=7', 'ns=2;i=7'],
    ['nsu=http://opcfoundation.org/UA/;i=2258', 'ns=0;i=2258'],
    ['ns=5;s=Any', 'ns=5;s=Any'],
    ['i=2258', 'ns=0;i=2258'],
  ])('find %s as %s', (node, found) => {
    expect(NAMESPACES.nodeIdOf(node).toString()).toBe(found);
  });

  it('rejects a URI unknown to the server, and an index that previously belonged to another URI', () => {
    const renumbered = new Namespaces(['http://opcfoundation.org/UA/', 'urn:b', 'urn:a'], NAMESPACES.uris.slice(0, 2));
    expect(() => NAMESPACES.nodeIdOf('nsu=urn:c;s=Line')).toThrow('does not have the namespace urn:c');
    expect(() => renumbered.nodeIdOf('ns=1;s=Line')).toThrow('1 was urn:a and is now urn:b');
    expect(['nsu=urn:a;i=1', 'ns=2;i=1', 'i=1'].map((node) => renumbered.nodeIdOf(node).namespace)).toEqual([2, 2, 0]);
  });

  it.each([
    ['ns=1;s=Line;1', 'nsu=urn:a;s=Line;1'],
    ['ns=2;i=7', 'nsu=http://b/?x%3By%25z;i=7'],
    ['ns=0;i=2258', 'i=2258'],
    ['ns=5;s=Any', 'ns=5;s=Any'],
  ])('write %s as %s', (node, written) => {
    expect(NAMESPACES.textOf(resolveNodeId(node))).toBe(written);
  });
});
