import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// precompress writes a gzip form of each text file that is worth it. The header of gzip has no time here, so that two
// builds of the same sources are equal. It reads what was written: Vite changes chunks until then.
function precompress(): Plugin {
  return {
    name: "precompress",
    apply: "build",
    async writeBundle({ dir }, bundle) {
      for (const name of Object.keys(bundle).filter((name) => /\.(js|css|svg|html)$/.test(name))) {
        const text = await readFile(join(dir!, name));
        const small = gzipSync(text, { level: 9 });
        if (small.length < 0.9 * text.length) await writeFile(join(dir!, `${name}.gz`), small);
      }
    },
  };
}

export default defineConfig({
  base: "/console/",
  plugins: [react(), precompress()],
  build: {
    target: "es2023",
    // A preload helper would add inline work for browsers that all know module preloads.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    sourcemap: false,
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        entryFileNames: "assets/[name]-[hash].js",
        chunkFileNames: "assets/[name]-[hash].js",
        assetFileNames: "assets/[name]-[hash][extname]",
      },
    },
  },
  server: { proxy: { "^/(?!console)": "http://localhost:8080" } },
});
