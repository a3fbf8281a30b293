# The HTTP service. Build:  docker build -t longtail .
# Run, with the folder of a trained model:
#   docker run --rm -p 8000:8000 -e LONGTAIL_API_KEY -v "$PWD/run:/models/run:ro" \
#       -v "$PWD/corrections:/corrections" longtail
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md ./
COPY src ./src
COPY recipes ./recipes
# With --build-arg of an index that has torch without CUDA, the image is gigabytes smaller.
ARG PIP_EXTRA_INDEX_URL
RUN python -m venv /opt/longtail \
    && /opt/longtail/bin/pip install --no-cache-dir -c constraints.txt '.[serve]'

FROM python:3.12-slim
RUN useradd --create-home --uid 10001 longtail && install -d -o longtail /corrections
COPY --from=build /opt/longtail /opt/longtail
ENV PATH=/opt/longtail/bin:$PATH PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
USER longtail
WORKDIR /home/longtail
VOLUME /corrections
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["longtail", "serve"]
CMD ["/models/run", "--host", "0.0.0.0", "--port", "8000", "--corrections", "/corrections/corrections.jsonl"]
