# docker build -t rowhouse .
# docker run -p 10002:10002 -v rowhouse:/data -e ROWHOUSE_ACCOUNTS="myaccount:$(openssl rand -base64 64 | tr -d '\n')" rowhouse
# To try it with the account that everybody knows, on this machine alone:
# docker run -p 127.0.0.1:10002:10002 -e ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT=true rowhouse
#
# In place of Azurite's image, for tools that start that one:
# docker build --target azurite -t rowhouse-azurite .
# docker run -p 10000-10002:10000-10002 rowhouse-azurite
#
# The images hold the program, the libraries that it is linked with, and root
# certificates: no shell and no package manager.

# Needs cargo, gcc, libc6-dev and ca-certificates, which the image for Rust has.
ARG BUILD_IMAGE=rust:1.95-slim-bookworm

FROM ${BUILD_IMAGE} AS build
WORKDIR /build
# The dependencies are a layer of their own: it is built again only when they change.
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY benches benches
COPY crates/observe/Cargo.toml crates/observe/
COPY crates/operator/Cargo.toml crates/operator/
COPY crates/protocol/Cargo.toml crates/protocol/
COPY crates/store/Cargo.toml crates/store/
COPY crates/transfer/Cargo.toml crates/transfer/
RUN mkdir src crates/observe/src crates/operator/src crates/protocol/src crates/store/src crates/transfer/src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs crates/observe/src/lib.rs crates/operator/src/lib.rs crates/protocol/src/lib.rs \
        crates/store/src/lib.rs crates/transfer/src/lib.rs \
    && cargo build --profile dist --locked --bin rowhouse \
    && rm -r src crates/*/src
COPY build.rs .
COPY console console
COPY crates crates
COPY src src
# Cargo tells what changed by its date, which COPY takes from the checkout.
RUN touch src/main.rs src/lib.rs crates/*/src/lib.rs && cargo build --profile dist --locked --bin rowhouse

FROM build AS files
WORKDIR /image
COPY LICENSE LICENSE-APACHE LICENSE-MIT usr/share/doc/rowhouse/
RUN mkdir -p usr/local/bin etc/ssl/certs tmp data ../azurite \
    && cp /build/target/dist/rowhouse usr/local/bin/ \
    && ldd usr/local/bin/rowhouse | grep -o '/[^ ]*' | xargs cp -L --parents -t . \
    && cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/ \
    && echo 'root:x:0:0:root:/:/sbin/nologin' > etc/passwd \
    && echo 'rowhouse:x:10001:0:rowhouse:/data:/sbin/nologin' >> etc/passwd \
    && echo 'root:x:0:' > etc/group \
    && chmod 1777 tmp \
    && chown 10001:0 data \
    && chmod 775 data \
    && ln -s rowhouse ../azurite/azurite \
    && ln -s rowhouse ../azurite/azurite-table

FROM scratch AS base
COPY --from=files /image/ /
LABEL org.opencontainers.image.title="Rowhouse" \
      org.opencontainers.image.description="The Azure Table storage API, self-hosted, on PostgreSQL or SQLite" \
      org.opencontainers.image.licenses="Apache-2.0 OR MIT"
ENV PATH=/usr/local/bin
# Operators are answered inside the container alone, which the health check needs:
# it asks whether the server is ready, on whatever port that serves clients.
ENV ROWHOUSE_LISTEN=0.0.0.0:10002 ROWHOUSE_ADMIN_LISTEN=127.0.0.1:10003
HEALTHCHECK --interval=3s --timeout=5s --start-period=30s --retries=3 CMD ["rowhouse", "healthcheck"]
STOPSIGNAL SIGTERM
WORKDIR /data

FROM base AS azurite
# The names say what is wanted. Tools give `azurite …` as the command, or `azurite`
# as the entry point, so there is none here. Nor is there a user: folders of the
# host that are mounted at /data belong to root, as with Azurite's image.
COPY --from=files /azurite/ /usr/local/bin/
VOLUME /data
EXPOSE 10000 10001 10002
CMD ["azurite", "-l", "/data", "--blobHost", "0.0.0.0", "--queueHost", "0.0.0.0", "--tableHost", "0.0.0.0"]

# The last stage is what is built unless told otherwise.
FROM base AS rowhouse
# Any other user will do, too: /data is writable for group 0, which is the group of
# users that the image does not know.
USER 10001:0
VOLUME /data
# Without DATABASE_URL, entities are in /data/rowhouse.db.
EXPOSE 10002
ENTRYPOINT ["rowhouse"]
CMD ["serve"]
