import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream, mkdirSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * `oci.ts ROOT VERSION FOLDER ARCH=LAYERS…` writes an OCI image layout (image-spec 1.0) with an image per architecture,
 * from the archives of image-layers. Written here instead of by an image builder, so that the same layers produce the
 * same bytes with only tar and gzip.
 */
const [, version, folder, ...images] = process.argv.slice(2) as [string, string, string, ...string[]];
const created = new Date(Number(process.env.SOURCE_DATE_EPOCH) * 1000).toISOString().replace('.000', '');
const MEDIA = 'application/vnd.oci.image';

interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
}

mkdirSync(join(folder, 'blobs/sha256'), { recursive: true });
const manifests: object[] = [];
for (const image of images) {
  const [architecture, from] = image.split('=') as [string, string];
  const layers: Descriptor[] = [];
  const diffIds: string[] = [];
  for (const name of ['debian', 'agent']) {
    const archive = join(from, `${name}.tar`);
    diffIds.push(await digestOf(archive));
    execFileSync('gzip', ['-n', '-6', '--force', archive]);
    layers.push(await blobFile(`${archive}.gz`, `${MEDIA}.layer.v1.tar+gzip`));
  }
  const config = blob(`${MEDIA}.config.v1+json`, {
    created,
    architecture,
    os: 'linux',
    config: {
      User: '8470:8470',
      ExposedPorts: { '8470/tcp': {}, '8471/tcp': {}, '8472/tcp': {} },
      Env: [
        'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
        'TAGFERRY_CONFIG=/etc/tagferry',
        'STATE_DIR=/var/lib/tagferry',
        'LOG_FORMAT=json',
      ],
      Entrypoint: ['/usr/bin/tagferry'],
      Cmd: ['run'],
      Volumes: { '/var/lib/tagferry': {} },
      WorkingDir: '/',
      StopSignal: 'SIGTERM',
      Labels: {
        'org.opencontainers.image.title': 'tagferry',
        'org.opencontainers.image.version': version,
        'org.opencontainers.image.created': created,
        'org.opencontainers.image.description': 'agent that delivers instrumentation values to an asset data service',
      },
    },
    rootfs: { type: 'layers', diff_ids: diffIds },
    history: [
      { created, created_by: 'debootstrap', comment: 'Debian' },
      { created, created_by: 'scripts/release', comment: `tagferry ${version}` },
    ],
  });
  const manifest = blob(`${MEDIA}.manifest.v1+json`, {
    schemaVersion: 2,
    mediaType: `${MEDIA}.manifest.v1+json`,
    config,
    layers,
  });
  manifests.push({
    ...manifest,
    platform: { architecture, os: 'linux', ...(architecture === 'arm64' ? { variant: 'v8' } : {}) },
    annotations: {
      'org.opencontainers.image.ref.name':
        images.length === 1 ? `tagferry:${version}` : `tagferry:${version}-${architecture}`,
    },
  });
}
// Tools resolve the tag to this index and choose the architecture from it.
const all = { schemaVersion: 2, mediaType: `${MEDIA}.index.v1+json`, manifests };
const top =
  manifests.length === 1
    ? all
    : {
        schemaVersion: 2,
        mediaType: `${MEDIA}.index.v1+json`,
        manifests: [
          {
            ...blob(`${MEDIA}.index.v1+json`, all),
            annotations: { 'org.opencontainers.image.ref.name': `tagferry:${version}` },
          },
        ],
      };
writeFileSync(join(folder, 'index.json'), JSON.stringify(top));
writeFileSync(join(folder, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));

async function digestOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  return `sha256:${hash.digest('hex')}`;
}

async function blobFile(file: string, mediaType: string): Promise<Descriptor> {
  const digest = await digestOf(file);
  const { size } = statSync(file);
  renameSync(file, join(folder, 'blobs/sha256', digest.slice(7)));
  return { mediaType, digest, size };
}

function blob(mediaType: string, content: object): Descriptor {
  const bytes = Buffer.from(JSON.stringify(content));
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  writeFileSync(join(folder, 'blobs/sha256', digest.slice(7)), bytes);
  return { mediaType, digest, size: bytes.length };
}
