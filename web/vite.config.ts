import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// precompress writes a gzip form of each text file that is worth it. The header of gzip has no time here, so that two
// builds of the same sources are equal.
function precompress(): Plugin {
  return {
    name: "precompress",
    apply: "build",
    enforce: "post",
    generateBundle(_, bundle) {
      for (const [name, file] of Object.entries(bundle)) {
        const text = file.type === "chunk" ? file.code : file.source;
        const small = gzipSync(text, { level: 9 });
        if (/\.(js|css|svg|html)$/.test(name) && small.length < 0.9 * text.length) {
          this.emitFile({ type: "asset", fileName: `${name}.gz`, source: small });
        }
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
