import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';

const run = promisify(execFile);

interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
  platform?: { architecture: string; os: string };
}

export interface ImageConfig {
  architecture: string;
  os: string;
  created: string;
  config: {
    User: string;
    Env: string[];
    Entrypoint: string[];
    Cmd: string[];
    Volumes: Record<string, object>;
    ExposedPorts: Record<string, object>;
  };
  rootfs: { type: string; diff_ids: string[] };
}

/** An unpacked OCI archive. Every blob is verified against its digest and size. */
export class OciImage {
  readonly #folder: string;
  readonly config: ImageConfig;
  /** Layers from the lowest to the highest. */
  readonly layers: readonly { file: string; diffId: string }[];

  constructor(archive: string, within: string) {
    this.#folder = mkdtempSync(join(within, 'oci-'));
    execFileSync('tar', ['-xf', archive, '-C', this.#folder]);
    const layout = JSON.parse(readFileSync(join(this.#folder, 'oci-layout'), 'utf8')) as { imageLayoutVersion: string };
    if (layout.imageLayoutVersion !== '1.0.0') throw new Error(`a layout of version ${layout.imageLayoutVersion}`);
    const index = JSON.parse(readFileSync(join(this.#folder, 'index.json'), 'utf8')) as { manifests: Descriptor[] };
    const manifest = JSON.parse(this.#blob(index.manifests[0]!).toString()) as {
      config: Descriptor;
      layers: Descriptor[];
    };
    this.config = JSON.parse(this.#blob(manifest.config).toString()) as ImageConfig;
    this.layers = manifest.layers.map((layer) => {
      const plain = gunzipSync(this.#blob(layer));
      return { file: this.#path(layer), diffId: `sha256:${createHash('sha256').update(plain).digest('hex')}` };
    });
  }

  #path({ digest }: Descriptor): string {
    return join(this.#folder, 'blobs', digest.replace(':', '/'));
  }

  #blob(descriptor: Descriptor): Buffer {
    const bytes = readFileSync(this.#path(descriptor));
    const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    if (digest !== descriptor.digest || bytes.length !== descriptor.size)
      throw new Error(
        `${descriptor.mediaType}: ${digest} of ${bytes.length} bytes is called ${descriptor.digest} of ${descriptor.size}`,
      );
    return bytes;
  }

  /** Returns one line per entry of a layer, such as `-rw-r--r-- 0/0 … ./path`. */
  async list(layer: number): Promise<{ mode: string; owner: string; path: string }[]> {
    const { stdout } = await run('tar', ['-tvzf', this.layers[layer]!.file, '--numeric-owner'], {
      maxBuffer: 64_000_000,
    });
    return stdout
      .trim()
      .split('\n')
      .map((line) => {
        const [mode, owner, , , , ...path] = line.split(/\s+/);
        return { mode: mode!, owner: owner!, path: path.join(' ').replace(/ (->|link to) .*/, '') };
      });
  }

  /** Applies the layers in order, as a container runtime does. */
  async unpack(to: string): Promise<void> {
    mkdirSync(to, { recursive: true });
    for (const { file } of this.layers)
      await run('tar', ['-xzpf', file, '--numeric-owner', '--keep-directory-symlink', '-C', to]);
  }
}

/**
 * A container as a runtime starts it, without a runtime: the unpacked root read-only, the state in a volume, tmpfs for
 * /run/tagferry and /tmp, with the user, environment and entrypoint of the image. The network is that of this machine.
 */
export class Container {
  readonly #root: string;
  readonly #image: ImageConfig;
  readonly #volume: string;
  readonly #files: string;
  readonly #environment: readonly string[];
  #child: ChildProcess | undefined;
  output = '';

  constructor(
    root: string,
    image: ImageConfig,
    options: { volume: string; files: string; environment: Record<string, string> },
  ) {
    this.#root = root;
    this.#image = image;
    this.#volume = options.volume;
    this.#files = options.files;
    this.#environment = [
      ...image.config.Env,
      ...Object.entries(options.environment).map(([key, value]) => `${key}=${value}`),
    ];
  }

  /** Starts the image's entrypoint. */
  start(): void {
    const { Entrypoint, Cmd, User } = this.#image.config;
    const [id] = User.split(':');
    const script = `
      root=$1 volume=$2 files=$3; shift 3
      mount --bind "$root" "$root"
      mount -o remount,bind,ro "$root"
      mount --bind "$volume" "$root/var/lib/tagferry"
      mount --bind -o ro "$files" "$root/etc/tagferry"
      mount -t tmpfs -o uid=${id},gid=${id},mode=750 run "$root/run/tagferry"
      mount -t tmpfs tmp "$root/tmp"
      mount -t proc proc "$root/proc"
      mount --rbind /dev "$root/dev"
      exec chroot --userspec=${User} "$root" env -i "$@"`;
    const inside = [...this.#environment, ...Entrypoint, ...Cmd];
    const where = ['sh', '-euc', script, 'sh', this.#root, this.#volume, this.#files];
    this.#child = spawn('unshare', ['--mount', '--propagation', 'private', ...where, ...inside], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.#child.stdout!, this.#child.stderr!])
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.output += text;
      });
  }

  /** Runs a command in the container, as `podman exec` does. Returns its exit status. */
  async exec(...command: string[]): Promise<number> {
    const enter = [
      '--target',
      String(this.#child!.pid),
      '--mount',
      '--root',
      '--wd=/',
      '--setuid',
      '8470',
      '--setgid',
      '8470',
    ];
    const done = await run('nsenter', [...enter, 'env', '-i', ...this.#environment, ...command]).catch(
      (error: { code: number }) => error,
    );
    return 'code' in done ? Number(done.code) : 0;
  }

  get hasEnded(): boolean {
    return this.#child !== undefined && (this.#child.exitCode !== null || this.#child.signalCode !== null);
  }

  async end(signal: NodeJS.Signals): Promise<number | string> {
    const child = this.#child;
    if (child === undefined) return 0;
    if (this.hasEnded) return child.exitCode ?? child.signalCode!;
    const ended = new Promise<number | string>((resolve) => child.once('exit', (code, name) => resolve(code ?? name!)));
    child.kill(signal);
    return ended;
  }
}
