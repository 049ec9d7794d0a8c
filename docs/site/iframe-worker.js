/* Search without a server. Browsers refuse workers to pages that are opened as files (file://), so there the search runs
   in a hidden frame that is spoken to as if it were a worker. Pages that come from a server never get past the first line. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      this.inside = new Promise(resolve => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow
          inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
          inside.importScripts = (...urls) => Promise.all(urls.map(each => this.load(inside, new URL(each, url))))
          this.load(inside, url).then(() => resolve(inside))
        }, { once: true })
      })
      document.body.append(frame)
    }

    load(inside, url) {
      return new Promise((resolve, reject) => {
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = resolve
        script.onerror = reject
        inside.document.head.append(script)
      })
    }

    postMessage(data) {
      this.inside.then(inside => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
